"""The store interface: the run folder satisfies it, and so does anything else with its five methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedquilt.runs.folder import SeedFolder
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from fedquilt.training.round_store import Record, RoundStore
from support.federations import assert_same_training, make_method, make_training, ragged_clients, without_seconds


@dataclass
class Saved:
    round: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class InMemory:
    """A store in memory."""

    def __init__(self) -> None:
        self.lines: list[Record] = []
        self.saved: list[Saved] = []

    def append(self, record: Record) -> None:
        self.lines.append(record)

    def records(self) -> list[Record]:
        return list(self.lines)

    def checkpoint(self, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.saved.append(Saved(round, {name: tensor.clone() for name, tensor in tensors.items()}, dict(facts)))

    def latest_checkpoint(self) -> Saved | None:
        return self.saved[-1] if self.saved else None

    def truncate_after(self, round: int) -> None:
        self.lines = [record for record in self.lines if record["round"] <= round]


def begin(store: RoundStore | None) -> Training:
    clients = ragged_clients()
    plan = Plan(5, 0.6, checkpoint_seconds=-1.0)
    return make_training(make_method("fedpub", clients), clients, plan, store=store)


def test_a_training_resumes_from_any_store(tmp_path: Path) -> None:
    whole = begin(None)
    whole.run()
    stores: list[RoundStore] = [InMemory(), SeedFolder(tmp_path)]
    for store in stores:
        first = begin(store)
        first.engine.evaluate()
        first.advance(3)
        resumed = begin(store)
        resumed.run()
        assert_same_training(resumed, whole)
        assert without_seconds(store.records()) == without_seconds(whole.records)
