"""Decoders of link prediction: the logit of an edge from the embeddings of its two nodes, without weights of their own.

    cosine  s z_u . z_v / (|z_u| |z_v|)
    dot     z_u . z_v
    mlp     sum_k c_k ReLU(z_uk + z_vk), where c_k is 1 for the first half of the units and -1 for the rest

The last is a perceptron with one hidden layer, c ReLU(W (h_u + h_v) + 2 b), whose first layer W is the model's last: z = W h
+ b. Weights of the second layer would change nothing but scale, as c ReLU(x) = sign(c) ReLU(|c| x).

Embeddings are small at the start of training, where the gradient of a product z_u . z_v is as small as they are: with dot a
model hardly learns for many rounds. The cosine does not depend on their length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

DecoderName = Literal["cosine", "dot", "mlp"]
_ZERO = 1e-6  # the length under which an embedding has no direction


@dataclass(frozen=True)
class Decoder:
    """A decoder in two steps, so that what concerns one node is computed once, not for each of its pairs.

    Attributes:
        read: what pairs read of the embeddings: [R, D] -> [R, D].
        pair: the logits of pairs, from what was read: [P, D] and [P, D] -> [P].
    """

    read: Callable[[Tensor], Tensor]
    pair: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """The logits of pairs from their embeddings: [P, D] and [P, D] -> [P]."""
        return self.pair(self.read(a), self.read(b))


def decoder_of(name: DecoderName, scale: float) -> Decoder:
    """The decoder called `name`; `scale` is s, of the cosine."""
    if name == "cosine":
        return Decoder(lambda z: scale**0.5 * directions(z), product)
    return Decoder(lambda z: z, perceptron if name == "mlp" else product)


def product(a: Tensor, b: Tensor) -> Tensor:
    """The inner product."""
    return (a * b).sum(1)


def perceptron(a: Tensor, b: Tensor) -> Tensor:
    """The decoder mlp."""
    units = torch.relu(a + b)
    half = _half(units)
    return units[:, :half].sum(1) - units[:, half:].sum(1)


def directions(z: Tensor) -> Tensor:
    """z / |z|, row by row; zeros, which have no gradient, where it has no length: [P, D] -> [P, D]."""
    length = z.norm(dim=1, keepdim=True)
    return torch.where(length > _ZERO, z / length.clamp_min(_ZERO), 0.0)


def mixed_embeddings(name: DecoderName, embeddings: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Embeddings whose logits are the weighted mean of those of several: [R, D] each, weights [R, V] -> [R, V D].

    They stand beside each other, times the root of their weights, since both ends of a pair have it; for the cosine by their
    directions; for mlp, which is linear in the length of what it reads, times their weights, all first halves first.
    """
    if name == "mlp":
        parts = [z * a for z, a in zip(embeddings, weights.unsqueeze(2).unbind(1), strict=True)]
        first = [z[:, : _half(z)] for z in parts]
        rest = [F.pad(z[:, _half(z) :], (0, z.shape[1] % 2)) for z in parts]  # as wide as the first half
        return torch.cat(first + rest, dim=1)
    parts = [directions(z) for z in embeddings] if name == "cosine" else list(embeddings)
    return torch.cat([z * a for z, a in zip(parts, weights.sqrt().unsqueeze(2).unbind(1), strict=True)], dim=1)


def _half(units: Tensor) -> int:
    """How many units count positively."""
    return (units.shape[1] + 1) // 2
