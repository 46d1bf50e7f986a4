from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.reports.show import draw_overview, read_overview
from fedquilt.reports.tables import to_markdown
from support.page_runs import write_run


def test_a_run_is_shown_with_its_table_and_its_figures(tmp_path: Path) -> None:
    overview = read_overview(write_run(tmp_path / "run", similarity=False))
    assert to_markdown(overview.table).startswith("fedpub: cora, disjoint, 4 clients, accuracy in %, 12 rounds")
    assert overview.notes == []
    figures = tmp_path / "run" / "figures"
    assert draw_overview(overview, ".svg") == [str(figures / name) for name in ("convergence.svg", "clients.svg")]


def test_a_run_with_views_says_which_weight_they_have(tmp_path: Path) -> None:
    fedquilt.run(
        "quilt",
        "patchwork",
        partition="natural",
        rounds=3,
        seeds=[0],
        settings={"hidden": 8, "sharpness": 0.1},  # so that every view has some weight
        out=tmp_path / "run",
    )
    overview = read_overview(tmp_path / "run")
    (note,) = overview.notes
    assert re.match(r"Views: \w+ 0\.\d\d(, \w+ 0\.\d\d){5} on average after the last round", note)
    assert set(re.findall(r"(\w+) 0\.", note)) == {"mlp", "filter", "gpr", "attention", "sage", "private"}
    assert str(tmp_path / "run" / "figures" / "views.svg") in draw_overview(overview, ".svg")
    assert read_overview(write_run(tmp_path / "old", "quilt")).notes == []


def test_a_comparison_is_shown_with_one_figure_and_what_is_not_done(tmp_path: Path) -> None:
    write_run(tmp_path / "both" / "fedavg", "fedavg")
    write_run(tmp_path / "both" / "quilt", "quilt", done=False, seeds=(0,))
    overview = read_overview(tmp_path / "both")
    assert overview.notes == ["quilt: Seed 0 is not done: 12 of 12 rounds so far."]
    assert draw_overview(overview) == [str(tmp_path / "both" / "figures" / "convergence.png")]
    with pytest.raises(FedquiltError, match="holds several runs; --against goes with one of them"):
        read_overview(tmp_path / "both", tmp_path / "both" / "quilt")
