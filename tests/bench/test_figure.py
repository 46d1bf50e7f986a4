from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.bench.figure import bench_figure
from fedquilt.reports.style import save_figure
from support.bench import made_up

TITLES = {"fedavg": "FedAvg", "quilt": "Quilt"}


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_the_figure_is_written(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"bench.{kind}"
    save_figure(bench_figure(made_up(), TITLES), path)
    assert path.stat().st_size > 1000


def test_it_shows_each_method_on_a_logarithmic_scale_with_the_plain_loop_marked() -> None:
    figure = bench_figure(made_up(), TITLES)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert axes.get_title(loc="left") == "cora/disjoint/10"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["FedAvg", "Quilt"]
    marks = {line.get_marker(): line.get_xdata() for line in axes.get_lines() if line.get_marker() == "D"}
    assert float(marks["D"][0]) == pytest.approx(88.0)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "fedquilt",
        "plain loop",
        "plain FedAvg loop",
    ]
