"""Where memory runs out, clients are trained in smaller cohorts, to the same numbers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import fedquilt
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import MachineLimitError
from fedquilt.methods.base import State, find_method
from fedquilt.training.smaller_cohorts import reporting_once, with_smaller_cohorts
from support.cli import outcome
from support.small_runs import Seen

CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 9 GiB of which 1.00 GiB is free."
OPTIONS: dict[str, Any] = {
    "clients": 6,
    "rounds": 4,
    "device": "cpu",
    "settings": {"hidden": 8},
    "checkpoint_seconds": 0.0,
}


def memory_for(patch: pytest.MonkeyPatch, method: str, clients: int, from_round: int = 0) -> None:
    """Let local training run out of memory with more clients at once, after it has changed their states."""
    kind = find_method(method)
    whole = kind.local_update

    def limited(self: Any, state: State, cohort: Cohort, down: Any, round: int) -> Any:
        update = whole(self, state, cohort, down, round)
        if cohort.clients > clients and round >= from_round:
            raise torch.OutOfMemoryError(CUDA)
        return update

    patch.setattr(kind, "local_update", limited)


@pytest.mark.parametrize("method", ["fedavg", "fedpub", "fediih"])
def test_a_run_goes_on_in_cohorts_that_fit_to_the_numbers_of_a_run_in_such_cohorts(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fedquilt.run(method, out=tmp_path / "given", cohort_size=2, seeds=[0, 1], **OPTIONS)
    memory_for(monkeypatch, method, clients=2)
    seen = Seen()
    fedquilt.run(
        method,
        out=tmp_path / "found",
        seeds=[0, 1],
        watch=seen,
        **OPTIONS,
    )
    assert outcome(tmp_path / "found") == outcome(tmp_path / "given")
    assert seen.rounds == [(seed, round) for seed in (0, 1) for round in range(4)]
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == [
        "The accelerator's memory ran out (2.0 GiB were asked for, 1.0 GiB were free) with 6 clients at once; "
        "training goes on in cohorts of 3.",
        "The accelerator's memory ran out (2.0 GiB were asked for, 1.0 GiB were free) with 3 clients at once; "
        "training goes on in cohorts of 2.",
    ]  # the second seed begins with what did
    sizes = [json.loads((tmp_path / "found" / f"seed-{seed}" / "summary.json").read_text()) for seed in (0, 1)]
    assert [summary["cohort_size"] for summary in sizes] == [2, 2]


@pytest.mark.parametrize("stored", [True, False])
def test_rounds_that_were_done_are_not_lost_and_not_told_twice(
    stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fedquilt.run("fedpub", **OPTIONS)
    memory_for(monkeypatch, "fedpub", clients=3, from_round=2)
    seen = Seen()
    run = fedquilt.run(
        "fedpub",
        out=tmp_path / "found" if stored else None,
        watch=seen,
        **OPTIONS,
    )
    assert seen.rounds == [(0, round) for round in range(4)]
    assert [record["round"] for record in run.records[0]] == [0, 1, 2, 3]
    for ours, theirs in zip(run.records[0], whole.records[0], strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
    for name, model in run.models[0].items():
        torch.testing.assert_close(model, whole.models[0][name], rtol=1e-4, atol=1e-5)


def test_a_client_that_does_not_fit_alone_is_an_error_that_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    memory_for(monkeypatch, "fedavg", clients=0)
    with pytest.raises(
        MachineLimitError, match=r"\(2\.0 GiB were asked for, 1\.0 GiB were free\) even with one client"
    ):
        fedquilt.run("fedavg", **OPTIONS)


def test_the_servers_part_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def no_memory(self: Any, *_: object) -> None:
        rounds.append(1)
        raise MemoryError

    monkeypatch.setattr(find_method("fedavg"), "aggregate", no_memory)
    with pytest.raises(MachineLimitError, match="where FedAvg's server combines what 6 clients sent"):
        fedquilt.run("fedavg", **OPTIONS)
    assert len(rounds) == 1


def test_newcomers_are_admitted_in_smaller_cohorts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = OPTIONS | {"clients": 4, "hold_out_clients": 0.5}
    fedquilt.run("fedsheafhn", out=tmp_path / "whole", **options)
    memory_for(monkeypatch, "fedsheafhn", clients=1)
    fedquilt.run("fedsheafhn", out=tmp_path / "found", **options)
    found, whole = (json.loads((tmp_path / run / "seed-0/summary.json").read_text()) for run in ("found", "whole"))
    assert found["admission"]["clients_test"] == pytest.approx(whole["admission"]["clients_test"], abs=3.0)
    assert found["admission"]["bytes_down"] == whole["admission"]["bytes_down"]


def test_other_errors_pass_and_the_size_is_halved() -> None:
    with pytest.raises(ValueError, match="other"):
        with_smaller_cohorts(lambda size: (_ for _ in ()).throw(ValueError("other")), None, 9)
    asked: list[int | None] = []

    def act(size: int | None) -> str:
        asked.append(size)
        if size is None or size > 2:
            raise MemoryError
        return "done"

    assert with_smaller_cohorts(act, None, 9) == ("done", 2)
    assert asked == [None, 5, 3, 2]
    assert with_smaller_cohorts(act, 100, 4)[1] == 2
    assert reporting_once(None) is None
