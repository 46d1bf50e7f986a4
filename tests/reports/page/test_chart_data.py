from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.reports.page.chart_data import _seconds_a_round, read_page_run
from fedquilt.reports.page.data import Page
from fedquilt.runs.folder import RunFolder
from support.page_document import data_of
from support.page_runs import write_run


def test_a_run_becomes_what_its_charts_need(tmp_path: Path) -> None:
    run = read_page_run(write_run(tmp_path / "run"), "FED-PUB", "cora, disjoint, 4 clients")
    assert (run.label, run.method, run.metric) == ("FED-PUB", "fedpub", "accuracy")
    assert run.curve.rounds == tuple(range(12))
    records = [RunFolder.open(tmp_path / "run").seed(seed).records() for seed in (0, 1)]
    tests = np.array([[record["test"] for record in rows] for rows in records])
    np.testing.assert_allclose(run.curve.test, tests.mean(0), atol=0.0051)
    np.testing.assert_allclose(run.curve.deviation, tests.std(0), atol=0.0051)
    assert [seed.seed for seed in run.seeds] == [0, 1]
    assert run.seeds[0].tests == tuple(round(test, 2) for test in records[0][-1]["clients"]["test"])
    assert run.upload == {"model.weight": 4000, "embedding": 500}
    assert run.download == {"model.weight": round(4000 * 11 / 12, 1)}
    assert run.timings == {"train": 0.012, "evaluate": 0.005, "server": 0.001, "other": 0.002}
    assert [(one.round, one.best) for one in run.seeds[0].similarities] == [
        (0, False),
        (4, False),
        (9, False),
        (11, True),
    ]


def test_seeds_may_be_in_folders_of_their_own(tmp_path: Path) -> None:
    together = read_page_run(write_run(tmp_path / "both", seeds=(0, 1)), "a", "s")
    folders = [write_run(tmp_path / f"seed{seed}", seeds=(seed,)) for seed in (0, 1)]
    apart = read_page_run(folders, "a", "s")
    assert apart.curve == together.curve
    assert [seed.seed for seed in apart.seeds] == [0, 1]
    assert "--seeds 0,1" in apart.command
    with pytest.raises(FedquiltError, match="no folder"):
        read_page_run([], "a", "s")


def test_a_run_with_views_has_their_weights_by_client_and_by_round(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "quilt", views=("mlp", "sage"))
    found = RunFolder.open(folder).seed(1).load_arrays("findings") or {}
    shares = read_page_run(folder, "Quilt", "s").seeds[1].views
    assert shares is not None
    assert (shares.names, shares.block, shares.last) == (("mlp", "sage"), 1, 11)
    np.testing.assert_allclose(shares.clients, found["views"], atol=5e-4)
    assert (shares.rounds, set(shares.by_round)) == (tuple(range(12)), {(0.5, 0.5)})
    assert read_page_run(write_run(tmp_path / "old", "quilt"), "Quilt", "s").seeds[0].views is None


def test_an_old_or_unfinished_run_shows_what_there_is(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", timings=False, classes=None, similarity=False, done=False)
    run = read_page_run(folder, "a", "s")
    assert run.timings == {"round": 0.02}
    assert _seconds_a_round([[{"seconds": 0.5, "phases": {"train": 0.5}}]]) == {"train": 0.5}
    assert run.seeds[0].best_round == 11
    assert len(run.seeds[0].tests) == 4
    assert run.seeds[0].similarities == ()
    assert run.seeds[0].holdings is not None
    assert run.seeds[0].holdings.counts == ()
    for file in folder.glob("seed-*/*"):
        file.unlink()
    empty = read_page_run(folder, "a", "s")
    assert empty.curve.rounds == ()
    assert empty.timings == {}
    assert empty.seeds[0].best_round is None
    data_of(Page("nothing yet", runs=(empty,)))
