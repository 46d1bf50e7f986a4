from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.reports.page.chart_data import read_page_run
from fedquilt.reports.page.data import Page
from support.page_document import data_of
from support.page_runs import write_run


def test_the_config_is_shown_and_the_command_repeats_it(tmp_path: Path) -> None:
    more = {"participation": 0.5, "settings": {"lr": 0.01, "share": "a b"}, "evaluate_every": 2, "sizes": [2, 1]}
    run = read_page_run(write_run(tmp_path / "run", more=more), "a", "s")
    assert run.command == (
        "fedquilt run --method fedpub --dataset cora --clients 4 --sizes 2,1 --metric accuracy --seeds 0,1 --rounds 12 "
        "--participation 0.5 --eval-every 2 --set lr=0.01 --set 'share=a b'"
    )
    groups = {group.title: dict(group.pairs) for group in run.facts}
    assert groups["Method settings"] == {"lr": "0.01", "hidden": "8"}
    assert groups["Environment and versions"] == {"device": "cpu", "fedquilt": "0.1.0", "torch": "2"}
    assert groups["Run"]["seeds"] == "0, 1"
    assert "attack_scale" not in groups["Run"]


@pytest.mark.parametrize("dataset", ["@given", "graph.npz"])
def test_the_command_of_a_graph_given_from_python_names_the_copy_in_the_folder(tmp_path: Path, dataset: str) -> None:
    folder = write_run(tmp_path / "own", more={"dataset": dataset})
    (folder / "graph.npz").touch()
    run = read_page_run(folder, "a", "s")
    assert f"--dataset {folder / 'graph.npz'} " in run.command
    assert "@given" not in data_of(Page("t", runs=(run,)))["runs"][0]["command"]
    assert dict(run.facts[0].pairs)["dataset"] == str(folder / "graph.npz")
