"""Line charts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from matplotlib.container import ErrorbarContainer

from fedquilt.studies.figures.lines import scale_of
from support.made_up_studies import HEAD, drawn, key, made_up, panels


def test_lines_have_whiskers_and_what_is_printed(tmp_path: Path) -> None:
    text = HEAD + "figures: [{kind: lines, x: epochs, log: true}]"
    figure = drawn(made_up(tmp_path, text, printed={"FED-PUB": 77.0}))["lines-1"]
    (axes,) = panels(figure)
    assert len([c for c in axes.containers if isinstance(c, ErrorbarContainer)]) == 3
    (published,) = [line for line in axes.get_lines() if line.get_label() == "_published"]
    assert published.get_ydata().tolist() == [77.0] * 3
    assert published.get_markerfacecolor() == "white"
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "3", "10"]
    assert key(figure) == ["Local", "FedAvg", "FED-PUB", "published"]
    assert axes.get_xlabel() == "Epochs"


def test_many_lines_stand_side_by_side(tmp_path: Path) -> None:
    more = "".join(f"    - {{label: Tau {n}, method: fedpub, settings: {{tau: {n}}}}}\n" for n in range(1, 6))
    text = HEAD.replace("  epochs: [1", more + "  epochs: [1") + "figures: [{kind: lines, x: epochs}]"
    (axes,) = panels(drawn(made_up(tmp_path, text))["lines-1"])
    starts = [c.lines[0].get_xdata()[0] for c in axes.containers if isinstance(c, ErrorbarContainer)]
    assert starts == sorted(set(starts))
    assert sum(starts) / len(starts) == pytest.approx(1.0)
    assert axes.get_xticks().tolist() == [1.0, 3.0, 10.0]


@pytest.mark.parametrize("log", [False, True])
def test_points_of_a_level_do_not_reach_the_next(log: bool) -> None:
    scale = scale_of(["1", "2", "10"], "k", log)
    offsets = scale.offsets(30)
    assert sum(offsets) == pytest.approx(0.0)
    assert scale.beside("1", offsets[-1]) < scale.beside("2", offsets[0])
    assert scale_of(["1"], "k", log).offsets(3)[1:] == pytest.approx([0.0, 0.012])


def test_where_levels_stand(tmp_path: Path) -> None:
    assert scale_of(["1", "2", "10"], "k", False).positions == {"1": 1.0, "2": 2.0, "10": 10.0}
    assert scale_of(["10%", "50%"], "share", False).positions == {"10%": 0.0, "50%": 1.0}
    assert scale_of(["0.001", "0.01", "1"], "mu", False).positions == {"0.001": 0.0, "0.01": 1.0, "1": 2.0}  # no room
    assert scale_of(["0.001", "0.01", "1"], "mu", True).log
    assert not scale_of(["0", "1"], "mu", True).log
    named = scale_of(["lambda=0", "lambda=0.5"], "setting", False)
    assert (named.ticks, named.name) == (["0", "0.5"], "lambda")
