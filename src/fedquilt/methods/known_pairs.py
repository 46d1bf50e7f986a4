"""Similarities between clients where only some send in a round: which pairs were ever compared, and what of the others."""

from __future__ import annotations

import torch
from torch import Tensor


def note_pairs(known: Tensor, senders: Tensor) -> None:
    """Note in place, [M, M] bool, that the senders [n] were compared with each other."""
    if len(senders) == len(known):
        known.fill_(True)
    else:
        known.index_put_((senders.unsqueeze(1), senders), torch.ones((), dtype=torch.bool, device=known.device))


def with_typical(similarity: Tensor, known: Tensor) -> Tensor:
    """The similarities [..., r, n] of r receivers with n senders, where those of pairs that were never compared are typical.

    known [r, n] says which were. Of the others, a receiver's is the mean of those it has with the other senders; zero where it
    has none, so that it weighs all senders alike. Without that, a client that was never seen beside another would count as its
    opposite.
    """
    has = known.to(similarity.dtype)
    typical = (similarity * has).sum(-1, keepdim=True) / has.sum(-1, keepdim=True).clamp_min(1.0)
    return torch.where(known, similarity, typical)
