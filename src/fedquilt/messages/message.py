"""Messages: named tensors that a method declares. Nothing else crosses between a client and the server.

A method declares every name with a sentence about what it reveals. In every engine, an undeclared name is an error before
anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from fedquilt.devices.offload import release_pages

WEIGHTS, COUNTS, NODES, OTHER = "weights", "counts", "nodes", "other"  # kinds of uploads


@dataclass(frozen=True)
class TensorSpec:
    """A declared upload or download.

    Attributes:
        name: its name, or a pattern with ``*``.
        reveals: one sentence, in plain words, about what the receiver learns from it.
        shared: the same tensor for every client (downloads only); otherwise the leading axis is the client.
        count: whether it is a count, such as of training nodes (uploads only). Under differential privacy a 1 is sent instead.
        weights: whether it is trained parameters of the model, or how training changed them (uploads only).
        gradient: whether it is a gradient, or a change of one, whose length differs far more between clients than that of
            weights (uploads only).
        nodes: whether it has rows of single nodes, so that the receiver learns something of each of them (uploads only).
    """

    name: str
    reveals: str
    shared: bool = False
    count: bool = False
    weights: bool = False
    gradient: bool = False
    nodes: bool = False

    @property
    def kind(self) -> str:
        """What an upload is: WEIGHTS, COUNTS, NODES or OTHER. A site lets the first two leave unless it says otherwise."""
        if self.nodes:  # also where the rows are counts or weights
            return NODES
        return COUNTS if self.count else WEIGHTS if self.weights else OTHER


@dataclass(frozen=True, eq=False)
class Sparse:
    """A tensor that is sent as the values of its non-zero entries, and one bit per entry for their positions.

    It holds the dense tensor (leading axis the client); `wire.encode` converts it to bytes.
    """

    tensor: Tensor

    def bytes_each(self) -> Tensor:
        """[M] bytes of each client's part: 4 per non-zero value and a bit per entry, or 4 per entry if that is less."""
        entries = self.tensor[0].numel()
        filled = self.tensor.flatten(1).count_nonzero(dim=1)
        return (filled * 4 + (entries + 7) // 8).clamp_max(entries * 4)


@dataclass(frozen=True, eq=False)
class Factored:
    """A download [M, ...] whose rows are computed when they are sent: row m = left[m] @ right + own[m] * stack[m].

    So averages for ten thousand clients need not be in memory at once.

    Attributes:
        left, right: [M, r] and [r, ...].
        own, stack: [M] and [M, ...]: each client's own tensor, and the weight with which it is added.
    """

    left: Tensor
    right: Tensor
    own: Tensor
    stack: Tensor

    def rows(self, first: int, last: int) -> Tensor:
        """[last - first, ...] the rows of the clients first .. last - 1."""
        mixed = self.left[first:last] @ self.right.flatten(1)
        mixed.addcmul_(self.own[first:last].unsqueeze(1), self.stack[first:last].flatten(1))
        release_pages(self.stack[first:last])
        return mixed.view(-1, *self.right.shape[1:])


Value = Tensor | Sparse | Factored
Message = dict[str, Value]


def declared(specs: Sequence[TensorSpec], name: str) -> TensorSpec | None:
    """Return the declaration that `name` equals or whose pattern it matches; None if there is none."""
    return next((c for c in specs if c.name == name or fnmatchcase(name, c.name)), None)


def check(message: Mapping[str, Value], specs: Sequence[TensorSpec], method: str, direction: str) -> None:
    """Refuse a message with a name that the method did not declare."""
    for name in message:
        if declared(specs, name) is None:
            raise UndeclaredError(f"Method '{method}' tried to {direction} '{name}', which it did not declare.")


class UndeclaredError(RuntimeError):
    """A method tried to send a name that it did not declare. This is a defect of the method; nothing is sent."""


def dense(value: Value) -> Tensor:
    """The value as a dense tensor."""
    if isinstance(value, Factored):
        return value.rows(0, len(value.left))
    return value.tensor if isinstance(value, Sparse) else value


def each_tensor(value: Value) -> tuple[Tensor, ...]:
    """The tensors that a value consists of."""
    if isinstance(value, Factored):
        return value.left, value.right, value.own, value.stack
    return (dense(value),)


def moved(message: Mapping[str, Value], device: torch.device) -> Message:
    """Return the same message on a device."""

    def move(value: Value) -> Value:
        if isinstance(value, Factored):
            return Factored(*(tensor.to(device) for tensor in each_tensor(value)))
        return Sparse(value.tensor.to(device)) if isinstance(value, Sparse) else value.to(device)

    return {name: move(value) for name, value in message.items()}


def message_bytes(message: Mapping[str, Value], specs: Sequence[TensorSpec], receivers: int) -> dict[str, int]:
    """Compute the bytes by name, summed over all clients. A shared tensor counts once for every client that receives it."""
    return {name: int(count) for name, count in message_bytes_on_device(message, specs, receivers).items()}


def message_bytes_on_device(
    message: Mapping[str, Value], specs: Sequence[TensorSpec], receivers: int
) -> dict[str, int | Tensor]:
    """Compute the same without synchronising: byte counts that depend on values are returned as scalars on their device."""
    out: dict[str, int | Tensor] = {}
    for name, value in message.items():
        spec = declared(specs, name)
        if isinstance(value, Sparse):
            out[name] = value.bytes_each().sum()
        elif isinstance(value, Factored):
            out[name] = len(value.left) * value.right[0].numel() * value.right.element_size()
        else:
            times = receivers if spec is not None and spec.shared else 1
            out[name] = value.numel() * value.element_size() * times
    return out
