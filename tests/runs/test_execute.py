"""A run carried out seed after seed: who watches it, and what is kept of each seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import Method, State
from fedquilt.methods.fedavg import FedAvg
from support.federations import without_seconds
from support.small_runs import SMALL, Seen, StopAfter

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
    seen = Seen()
    fedquilt.run("local", seeds=[5, 6], watch=seen, **SMALL)
    told = [[("local", seed, 3), *((seed, r) for r in range(3)), (seed, "done")] for seed in (5, 6)]
    assert seen.calls == told[0] + told[1]
    seen.calls.clear()
    fedquilt.run("majority", watch=seen, clients=3)
    assert seen.calls == [("majority", 0, 1), (0, 0), (0, "done")]


def test_a_callback_stops_a_run_which_is_kept_and_resumed(tmp_path: Path) -> None:
    whole = fedquilt.run("fedavg", seeds=[0, 1], **SMALL)
    stop = StopAfter(1, 1, fedquilt.StopRun("it is  late"))
    run = fedquilt.run("fedavg", out=tmp_path / "run", seeds=[0, 1], watch=stop, **SMALL)
    assert stop.calls[-3:] == [(1, 0), (1, 1), (1, None)]
    assert run.stopped == "it is late"
    assert "stopped: it is late" in repr(run)
    assert [len(run.records[seed]) for seed in (0, 1)] == [3, 2]
    assert run.result["seeds"][0]["test"] == whole.result["seeds"][0]["test"]
    assert not (tmp_path / "run" / "result.json").exists()
    mark = {"seeds_begun": 2, "rounds_of_last": 2, "reason": "it is late"}
    assert json.loads((tmp_path / "run" / "stopped.json").read_text()) == run.result["stopped"] == mark
    with pytest.raises(FedquiltError, match=r"stopped by a callback \(it is late\); go on with it"):
        fedquilt.load_run(tmp_path / "run")
    again = fedquilt.resume(tmp_path / "run")
    assert without_seconds(again.records[1]) == without_seconds(whole.records[1])
    assert again.result["test_mean"] == whole.result["test_mean"]
    assert again.stopped is None
    assert not (tmp_path / "run" / "stopped.json").exists()


def test_a_run_in_memory_that_is_stopped_has_the_result_so_far() -> None:
    run = fedquilt.run("fedavg", seeds=[0, 1], watch=StopAfter(0, 1, fedquilt.StopRun()), **SMALL)
    assert [seed["seed"] for seed in run.result["seeds"]] == [0]
    assert list(run.models) == [0]
    # A stop after the last round of the last seed changes nothing.
    done = fedquilt.run("fedavg", watch=StopAfter(0, 2, fedquilt.StopRun()), **SMALL)
    assert done.stopped is None
    assert done.result == fedquilt.run("fedavg", **SMALL).result | {"seeds": done.result["seeds"]}
    with pytest.raises(FedquiltError, match="before its first evaluation"):
        fedquilt.run("fedavg", watch=StopAfter(0, 0, fedquilt.StopRun()), evaluate_every=3, **SMALL)


def test_a_callback_that_raises_is_reported_and_the_run_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    broken, other = StopAfter(0, 0, ValueError("oops")), Seen()
    run = fedquilt.run("fedavg", watch=[broken, other], **SMALL)
    assert run.stopped is None
    assert broken.calls == [("fedavg", 0, 3), (0, 0)]
    assert other.calls[-1] == (0, "done")
    said = capsys.readouterr().err
    assert said.startswith("fedquilt: The callback StopAfter failed in round (ValueError: oops, ")
    assert "small_runs.py line " in said
    assert said.endswith("; the training goes on without it.\n")


def test_a_run_is_not_resumed_by_a_version_with_other_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fedquilt.run("fedavg", out=tmp_path / "run", **SMALL, seeds=[0, 1])
    monkeypatch.setattr("fedquilt.runs.seal.COMPUTE_VERSION", -1)
    assert fedquilt.resume(tmp_path / "run").result["seeds"]  # all seeds are done, and only read
    (tmp_path / "run" / "seed-1" / "summary.json").unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(FedquiltError, match="cannot be resumed: it was begun by a fedquilt whose numbers differ"):
        fedquilt.resume(tmp_path / "run")
    assert {path: path.read_bytes() for path in before} == before
