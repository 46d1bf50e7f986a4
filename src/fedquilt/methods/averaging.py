"""How a server averages what clients sent: a rule that a method is given when it is made.

`WeightedMean` is the usual rule. `robust_aggregation` and `guarded_aggregation` in `fedquilt.scenarios` have rules that a few
hostile clients cannot move far. Stacks have the client as leading axis: [M, ...].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.devices.offload import row_chunks


class Averaging(ABC):
    """An averaging rule.

    Attributes:
        needs_previous: whether it wants to know the values that were sent before.
    """

    needs_previous: ClassVar[bool] = False

    @abstractmethod
    def average(self, stack: Tensor, weight: Tensor | None = None, previous: Tensor | None = None) -> Tensor:
        """One average for everyone: [M, ...] -> [...].

        Args:
            stack: a tensor a client.
            weight: [M] what each client counts; None: all count the same. Clients state it themselves, so that robust
                rules ignore or bound it.
            previous: [...] the average that was sent before, the common start where none was; None where it is not known.
        """

    @abstractmethod
    def mix(self, share: Tensor, stack: Tensor, own: Tensor | None = None) -> Tensor:
        """An average for each of r receivers: share [r, M], whose rows sum to one, and stack [M, ...] -> [r, ...].

        The server computed the shares, so that robust rules respect them.

        Args:
            own: [r] the receivers' places among the senders, -1 of those who did not send; None: they are the senders.
        """

    @abstractmethod
    def average_patches(self, stack: Tensor, evidence: Tensor, floor: Tensor, previous: Tensor | None = None) -> Tensor:
        """An average of each patch p over the clients that have evidence for it: [M, P, ...] -> [P, ...].

        Args:
            stack: a tensor a client, patches along its first axis.
            evidence: [M, P] how much evidence a client has for a patch.
            floor: [M, 1] what is added to it, so that a patch without any evidence has an average too.
            previous: [P, ...] the average that was sent before.
        """

    def total(self, stack: Tensor) -> Tensor:
        """M times the average: [M, ...] -> [...]."""
        return len(stack) * self.average(stack)

    def mix_factors(self, share: Tensor, stack: Tensor, own: Tensor | None = None) -> Tensor:
        """An average for each receiver and factor k: share [K, r, M], stack [M, F, K, D] -> [r, F, K, D]."""
        return torch.stack([self.mix(each, stack[:, :, k], own) for k, each in enumerate(share)], dim=2)

    def trust(
        self, stacks: Sequence[Tensor], previous: Sequence[Tensor], votes: Sequence[Tensor | None]
    ) -> list[Tensor] | None:
        """Which clients count in each of the tensors that are averaged together (1 or 0), [M] each; None: all in all of them.

        Args:
            stacks: the tensors, [M, ...] each; previous: what was sent before, [...] each.
            votes: [M, P] of tensors that are averaged patch by patch, with patches along their first axis; None of others.
        """
        return None

    def limited(self, stack: Tensor, centred: bool = False) -> Tensor:
        """What clients sent, [M, ...], bounded in length where the rule does that; `centred`: in distance from the median."""
        return stack

    def limited_counts(self, count: Tensor, *sizes: Tensor) -> Tensor:
        """Counts by which clients' statistics are combined, bounded where the rule does that: [M, C], sizes [M, C] each.

        `sizes` are lengths of the statistics; a count of zero leaves a client's out.
        """
        return count


class WeightedMean(Averaging):
    """The mean, weighted where weights are given."""

    def average(self, stack: Tensor, weight: Tensor | None = None, previous: Tensor | None = None) -> Tensor:
        """sum_m weight_m stack_m / sum_m weight_m."""
        return stack.mean(0) if weight is None else weighted_mean(stack, weight)

    def mix(self, share: Tensor, stack: Tensor, own: Tensor | None = None) -> Tensor:
        """sum_m share_rm stack_m."""
        return (share @ stack.flatten(1)).view(len(share), *stack.shape[1:])

    def average_patches(self, stack: Tensor, evidence: Tensor, floor: Tensor, previous: Tensor | None = None) -> Tensor:
        """sum_m e_mp stack_m[p] / sum_m e_mp with e = evidence + floor."""
        return patch_mean(stack, evidence + floor)

    def total(self, stack: Tensor) -> Tensor:
        """sum_m stack_m."""
        return stack.sum(0)

    def mix_factors(self, share: Tensor, stack: Tensor, own: Tensor | None = None) -> Tensor:
        """sum_m share_krm stack_m[:, k], all factors in one product."""
        return torch.einsum("krn,nfkd->rfkd", share, stack)


WEIGHTED_MEAN = WeightedMean()


def places_among(senders: Tensor, receivers: Tensor, clients: int) -> Tensor:
    """The receivers' places among the senders, -1 of those who did not send: [n], [r] numbers of `clients` -> [r]."""
    place = torch.full((clients,), -1, device=senders.device)
    place[senders] = torch.arange(len(senders), device=senders.device)
    return place[receivers]


def strangers(share: Tensor) -> Tensor:
    """The places among the senders of receivers that are none of them, for `Averaging.mix`: share [r, n] -> [r] of -1."""
    return torch.full((len(share),), -1, device=share.device)


def weighted_mean(stack: Tensor, weight: Tensor) -> Tensor:
    """sum_m weight_m stack_m / sum_m weight_m, [M, ...] -> [...]: one product, no copy of the stack."""
    share = weight / weight.sum()
    parts = [share[rows] @ piece.flatten(1) for rows, piece in row_chunks(stack)]
    return (parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)).view(stack.shape[1:])


def patch_mean(stack: Tensor, weight: Tensor) -> Tensor:
    """sum_m weight_mp stack_m[p] / sum_m weight_mp for every patch p: stack [M, P, ...], weight [M, P] -> [P, ...]."""
    share = weight / weight.sum(0)
    if stack.is_cuda:  # a product a patch, which is one call there and many tiny products on a CPU
        return (share.T.unsqueeze(1) @ stack.reshape(*share.shape, -1).transpose(0, 1)).view(stack.shape[1:])
    share = share.view(*share.shape, *[1] * (stack.dim() - 2))
    out = torch.zeros_like(stack[0])
    for rows, piece in row_chunks(stack):
        for own, own_share in zip(piece, share[rows], strict=True):  # nothing as large as the stack is allocated
            out.addcmul_(own, own_share)
    return out
