"""The entries, panels and looks of a figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from support.made_up_studies import HEAD, drawn, key, made_up, named, panels


def test_a_method_keeps_its_colour_where_others_are_not_done(tmp_path: Path) -> None:
    summary = made_up(tmp_path, HEAD + "figures: [{kind: convergence}]", done=7)  # 9 places, seed by seed
    figure = drawn(summary)["convergence-1"]
    first, last = panels(figure)[0], panels(figure)[-1]
    assert named(first) == ["Local", "FedAvg", "FED-PUB"]
    assert named(last) == ["Local", "FedAvg"]
    assert [line.get_color() for line in last.get_lines()] == [line.get_color() for line in first.get_lines()][:2]
    assert not first.collections  # one seed has no band


def test_what_has_no_number_takes_no_room(tmp_path: Path) -> None:
    text = HEAD.replace("values: {", "values: {nodes: Nodes, ")
    summary = made_up(tmp_path, text + "figures: [{kind: bars, x: epochs}, {kind: lines, x: epochs}]")
    entries = [replace(e, by_seed={}) if e.at["method"] == "Local" else e for e in summary.entries]
    figures = drawn(replace(summary, entries=entries))
    assert key(figures["bars-1"]) == key(figures["lines-1"]) == ["FedAvg", "FED-PUB"]
