"""Upload transforms: applied in order before aggregation, and their entries reach records, summaries and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import fedquilt
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.training.plan import Plan
from support.federations import make_method, make_training, ragged_clients


@dataclass
class Affine:
    """Sends scale * upload + shift."""

    scale: float
    shift: float

    def applied(
        self, uploads: Message, specs: Sequence[TensorSpec], round: int, senders: Tensor, down: Message
    ) -> Message:
        assert len(senders) == len(dense(next(iter(uploads.values()))))
        return {name: self.scale * dense(value) + self.shift for name, value in uploads.items()}

    def record_entries(self, round: int) -> dict[str, float]:
        return {"scale": self.scale * (round + 1)}

    def summary_entries(self, rounds: int) -> dict[str, Any]:
        return {"scaled": rounds}

    def groups(self, clients: int) -> dict[str, list[int]]:
        return {"even": list(range(0, clients, 2))}


def test_transforms_are_applied_in_order() -> None:
    clients, seen = ragged_clients(), []
    for transforms in ((), (Affine(2.0, 1.0), Affine(1.0, 10.0)), (Affine(1.0, 10.0), Affine(2.0, 1.0))):
        training = make_training(make_method("fedavg", clients), clients, Plan(2, 0.6), upload_transforms=transforms)
        whole = training.runner.aggregate

        def watched(server: Any, uploads: Message, *rest: Any, whole: Any = whole) -> Message:
            seen.append(dense(uploads["model.conv1.weight"]).clone())
            return whole(server, uploads, *rest)

        training.runner.aggregate = watched
        training.runner.run(0)
    plain, one, other = seen
    assert torch.allclose(one, 2 * plain + 11)
    assert torch.allclose(other, 2 * plain + 21)


def test_entries_reach_records_summary_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResolvedRun, "attack", lambda self, seed: Affine(1.0, 0.0))
    run = fedquilt.run("fedavg", clients=5, rounds=3, device="cpu", settings={"hidden": 8})
    assert [record["scale"] for record in run.records[0]] == [1.0, 2.0, 3.0]
    (line,) = run.result["seeds"]
    best = run.records[0][line["best_round"]]["clients"]["test"]
    assert line["groups"] == {"even": {"clients": 3, "test": pytest.approx(sum(best[::2]) / 3)}}
