from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.reports.read_run import BEST, read_run, read_runs, summary_so_far
from fedquilt.runs.folder import RunFolder
from fedquilt.training import loop
from support.page_runs import write_run


def test_a_finished_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    assert (run.method, [seed.seed for seed in run.seeds], run.unfinished) == ("fedpub", [0, 1], [])
    assert [len(seed.records) for seed in run.seeds] == [12, 12]
    assert run.result is not None
    assert run.result["test_mean"] == pytest.approx(sum(seed.records[-1]["test"] for seed in run.seeds) / 2)


def test_the_summary_so_far_of_an_unfinished_seed_is_that_of_a_finished_one(tmp_path: Path) -> None:
    done = read_run(write_run(tmp_path / "done")).seeds[0].summary
    begun = read_run(write_run(tmp_path / "begun", done=False))
    assert begun.unfinished[0] == "Seed 0 is not done: 12 of 12 rounds so far."
    summary = begun.seeds[0].summary
    assert summary is not None
    assert done is not None
    assert summary.pop("clients_test") == done.pop("clients_test")
    assert {**summary, "metric": "accuracy"} == pytest.approx(done)


def test_the_best_round_so_far_is_by_validation_where_it_was_evaluated() -> None:
    records = [{"round": i, "val": val, "test": i} for i, val in enumerate((1.0, None, 3.0, 3.0, 2.0))]
    best = summary_so_far(0, records)
    assert best is not None
    assert (best["best_round"], best["test"], best["clients_test"]) == (2, 2, [])
    assert summary_so_far(0, records[1:2]) is None


def test_a_folder_is_a_run_or_a_comparison(tmp_path: Path) -> None:
    for name in ("fedavg", "quilt"):
        write_run(tmp_path / "both" / name, name)
    runs, several = read_runs(tmp_path / "both")
    assert ([run.method for run in runs], several) == (["fedavg", "quilt"], True)
    runs, several = read_runs(tmp_path / "both" / "quilt")
    assert ([run.method for run in runs], several) == (["quilt"], False)


def test_a_run_without_an_evaluated_round_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "run")
    folder.config = {"method": "fedavg", "seeds": [0], "rounds": 3, "dataset": "cora"}
    with pytest.raises(FedquiltError, match=r"^No round in .*run has been evaluated yet; try again later"):
        read_runs(tmp_path / "run")


def test_the_best_rounds_similarity_is_read_under_the_key_it_is_written() -> None:
    assert BEST == loop.BEST
