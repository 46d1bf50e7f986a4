"""Convergence curves."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from support.made_up_studies import HEAD, drawn, key, made_up, named, panels


def test_convergence_has_a_panel_a_place_and_a_line_a_method(tmp_path: Path) -> None:
    figure = drawn(made_up(tmp_path, HEAD + "figures: [{kind: convergence}]"))["convergence-1"]
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["epochs = 1", "epochs = 3", "epochs = 10"]
    colours = []
    for axes in panels(figure):
        assert named(axes) == ["Local", "FedAvg", "FED-PUB"]
        lines = axes.get_lines()
        colours.append([line.get_color() for line in lines])
        assert len({line.get_marker() for line in lines}) == 3
        assert lines[0].get_xdata().tolist() == [1, 2, 4, 5, 6]  # rounds count from 1; the third was not evaluated
        assert lines[2].get_linewidth() > lines[0].get_linewidth()  # the paper's own method
        assert len(axes.collections) == 3  # a band each, over two seeds
    assert colours[0] == colours[1] == colours[2]
    assert key(figure) == ["Local", "FedAvg", "FED-PUB"]


def test_where_narrows_a_figure(tmp_path: Path) -> None:
    text = HEAD + "figures: [{kind: convergence, where: {epochs: 3, method: [Local, FedAvg]}}]"
    (axes,) = panels(drawn(made_up(tmp_path, text))["convergence-1"])
    assert named(axes) == ["Local", "FedAvg"]
    assert axes.get_title(loc="left") == ""  # what holds for all is no title
