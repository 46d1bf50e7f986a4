from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from fedquilt.reports.page.build import write_page
from fedquilt.reports.page.chart_data import read_page_run
from fedquilt.reports.page.data import Page
from fedquilt.reports.page.payload import MANY_RUNS, payload, script_json
from fedquilt.runs.folder import RunFolder
from support.page_document import data_of, unpacked
from support.page_runs import write_run


def test_similarities_survive_the_packing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", factors=3, clients=7)
    seed = data_of(Page("t", runs=(read_page_run(folder, "a", "s"),)))["runs"][0]["seeds"][0]
    arrays = RunFolder.open(folder).seed(0).load_arrays("similarity") or {}
    off = ~np.eye(7, dtype=bool)
    for one, key in zip(seed["similarities"], ("0", "4", "9", "-1"), strict=True):
        for factor in range(3):
            np.testing.assert_allclose(unpacked(one, factor)[off], arrays[key][factor][off], atol=1e-3)


def test_methods_of_a_comparison_share_their_cut(tmp_path: Path) -> None:
    first = read_page_run(write_run(tmp_path / "a", "aaaaaa"), "a", "s")
    second = read_page_run(write_run(tmp_path / "b", "bbbbbb"), "b", "s")
    data = data_of(Page("t", runs=(first, second)))
    assert len(data["holdings"]) == 2  # a seed each
    assert [seed["holdings"] for run in data["runs"] for seed in run["seeds"]] == [0, 1, 0, 1]


def test_the_weights_of_views_are_there_for_the_runs_that_have_some(tmp_path: Path) -> None:
    quilt = read_page_run(write_run(tmp_path / "quilt", "quilt", views=("mlp", "sage")), "quilt", "s")
    other = read_page_run(write_run(tmp_path / "other"), "other", "s")
    one, two = (run["seeds"] for run in data_of(Page("t", runs=(quilt, other)))["runs"])
    assert [set(seed["views"]) for seed in one] == [{"names", "clients", "block", "rounds", "byRound", "last"}] * 2
    assert one[0]["views"]["names"] == ["mlp", "sage"]
    assert all("views" not in seed for seed in two)
    many = json.loads(payload(Page("t", runs=(quilt,) * (MANY_RUNS + 1))))["runs"][0]["seeds"]
    assert ["views" in seed for seed in many] == [True, False]


def test_a_page_of_400_runs_stays_small(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", seeds=(0, 1, 2), rounds=200, clients=50, factors=6, classes=40, more={"clients": 50}
    )
    run = read_page_run(folder, "a", "s")
    runs = tuple(
        dataclasses.replace(run, label=f"method {i % 11}", setting=f"graph {i // 11}, disjoint, 50 clients")
        for i in range(400)
    )
    page = Page("A study", runs=runs)
    write_page(page, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 6_000_000
    data = json.loads(payload(page))
    assert data["similaritiesLeftOut"]
    assert all("similarities" not in seed for run in data["runs"] for seed in run["seeds"][1:])
    few = json.loads(payload(Page("t", runs=runs[:2])))
    assert not few["similaritiesLeftOut"]
    assert all(len(seed["similarities"]) == 4 for run in few["runs"] for seed in run["seeds"])
    some = json.loads(payload(Page("t", runs=runs[: MANY_RUNS + 1])))
    assert all("similarities" not in seed for run in some["runs"] for seed in run["seeds"][1:])


def test_marks_of_direction_are_shown_and_not_obeyed() -> None:
    text = script_json({"label\u202e": ["\ud800", ("a\x9bb", 1)]})
    text.encode("utf-8")  # can be written
    assert json.loads(text) == {r"label\u202e": [r"\ud800", [r"a\u009bb", 1]]}
