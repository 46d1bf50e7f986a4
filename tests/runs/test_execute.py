"""A run carried out seed after seed: who watches it, and what is kept of each seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import Method, State
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs.config import RunConfig
from support.small_runs import SMALL

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_findings_are_kept_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def findings(self: Method, server: State, clients: State) -> State:
        asked.append(self.context.seed)
        return {"seed": torch.full((3,), self.context.seed), "bias": clients["model.classifier.bias"]}

    monkeypatch.setattr(FedAvg, "findings", findings)
    run = fedquilt.run("fedavg", out="out", seeds=[0, 4], **SMALL)
    assert asked == [0, 4]
    assert run.findings[4]["seed"].tolist() == [4, 4, 4]
    assert run.findings[4]["bias"].shape[0] == 3
    again = fedquilt.resume("out")
    assert asked == [0, 4]  # read, not computed again
    for seed in (0, 4):
        assert again.findings[seed].keys() == run.findings[seed].keys()
        assert all(np.array_equal(again.findings[seed][name], array) for name, array in run.findings[seed].items())
    assert fedquilt.run("fedavg", **SMALL).findings[0].keys() == run.findings[0].keys()
    other = fedquilt.run("local", out="local", **SMALL)
    assert other.findings == fedquilt.resume("local").findings == {0: {}}
    assert not (tmp_path / "local" / "seed-0" / "findings.npz").exists()


def test_the_watcher_sees_each_seed_and_round() -> None:
    seen: list[tuple] = []

    def watch(config: RunConfig, seed: int, rounds: int) -> Callable:
        seen.append((config.method, seed, rounds))
        return lambda record: seen.append((seed, record["round"]))

    fedquilt.run("local", seeds=[5, 6], watch=watch, **SMALL)
    assert seen == [("local", 5, 3), *((5, r) for r in range(3)), ("local", 6, 3), *((6, r) for r in range(3))]
    seen.clear()
    fedquilt.run("majority", watch=watch, clients=3)
    assert seen == [("majority", 0, 1), (0, 0)]


def test_a_run_is_not_resumed_by_a_version_with_other_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fedquilt.run("fedavg", out=tmp_path / "run", **SMALL, seeds=[0, 1])
    monkeypatch.setattr("fedquilt.runs.seal.COMPUTE_VERSION", -1)
    assert fedquilt.resume(tmp_path / "run").result["seeds"]  # all seeds are done, and only read
    (tmp_path / "run" / "seed-1" / "summary.json").unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(FedquiltError, match="cannot be resumed: it was begun by a fedquilt whose numbers differ"):
        fedquilt.resume(tmp_path / "run")
    assert {path: path.read_bytes() for path in before} == before
