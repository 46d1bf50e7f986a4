"""The progress of a training: rounds done, seconds, bytes, and the best round so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedquilt.devices import offload
from fedquilt.methods.base import State


@dataclass
class BestRound:
    """The round with the best mean validation metric so far.

    Attributes:
        round: its number; -1 before the first evaluation.
        val, test: its mean metrics, scaled (`Metric.scale`).
        clients_test: each client's test metric, scaled; None where undefined.
        models: the personal models of that round, leading axis the client.
        similarity: the similarity between clients of that round, where the method has one.
    """

    round: int = -1
    val: float = -math.inf
    test: float = math.nan
    clients_test: list[float | None] = field(default_factory=list)
    models: State = field(default_factory=dict)
    similarity: Tensor | None = field(default=None, repr=False)

    def copy_models(self, models: Mapping[str, Tensor], similarity: Tensor | None, better: Tensor | None) -> None:
        """Copy models and similarity of the current round to here.

        With `better`, a boolean scalar on the device, the copy happens only where it is true, and the host does not wait.
        """
        for name, model in models.items():
            self.models[name] = _copied(self.models.get(name), model, better)
        if similarity is not None:
            self.similarity = _copied(self.similarity, similarity, better)


def _copied(kept: Tensor | None, new: Tensor, better: Tensor | None) -> Tensor:
    """`kept` overwritten by `new` (where `better`, if given); a copy of `new` where nothing was kept yet."""
    out = offload.empty_like(new) if kept is None else kept
    if kept is None or better is None:
        for rows, chunk in offload.row_chunks(out):
            offload.release_pages(chunk.copy_(new[rows]), new[rows])
    else:
        torch.where(better, new, out, out=out)
    return out


@dataclass
class Progress:
    """How far a training has come. Engine and server state are stored elsewhere."""

    next_round: int = 0
    seconds: float = 0.0
    upload_bytes: int = 0
    download_bytes: int = 0
    best: BestRound = field(default_factory=BestRound)

    def summary(self, seed: int, metric: str | None) -> dict[str, Any]:
        """The entries that summary.json has for every training."""
        return {
            "seed": seed,
            "best_round": self.best.round,
            "val": self.best.val,
            "test": none_if_nan(self.best.test),
            "seconds": self.seconds,
            "seconds_per_round": self.seconds / max(1, self.next_round),
            "upload_bytes": self.upload_bytes,
            "download_bytes": self.download_bytes,
            "metric": metric,
            "rounds_run": self.next_round,
            "clients_test": self.best.clients_test,
        }


def none_if_nan(value: float) -> float | None:
    """None for NaN, which JSON cannot express."""
    return None if math.isnan(value) else value
