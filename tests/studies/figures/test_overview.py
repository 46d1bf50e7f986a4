"""The overview of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from matplotlib.container import ErrorbarContainer

from support.made_up_studies import HEAD, drawn, key, made_up, panels


def test_the_overview_shows_rows_and_what_is_printed(tmp_path: Path) -> None:
    figure = drawn(made_up(tmp_path, HEAD, printed={"Local": 70.0, "FED-PUB": 80.0}))["overview"]
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["epochs = 1", "epochs = 3", "epochs = 10"]
    first = panels(figure)[0]
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["Local", "FedAvg", "FED-PUB"]
    assert [tick.get_fontweight() for tick in first.get_yticklabels()] == ["normal", "normal", "bold"]
    labels = [str(line.get_label()) for line in first.get_lines()]
    assert labels.count("_published") == 2
    assert labels.count("_reference") == 1
    assert len([c for c in first.containers if isinstance(c, ErrorbarContainer)]) == 3
    assert "published" in key(figure)


def test_the_overview_tells_the_last_axis_apart_by_colour(tmp_path: Path) -> None:
    text = HEAD.replace("columns: [epochs]", "columns: [participation, epochs]") + "  participation: [0.5, 1.0]\n"
    figure = drawn(made_up(tmp_path, text))["overview"]
    assert [axes.get_title(loc="left") for axes in panels(figure)] == ["participation = 0.5", "participation = 1.0"]
    assert key(figure)[:3] == ["epochs = 1", "epochs = 3", "epochs = 10"]


def test_the_overview_marks_what_is_far_off_and_never_hides_a_winner(tmp_path: Path) -> None:
    summary = made_up(tmp_path, HEAD)
    far = {"Local": 1.0, "FED-PUB": 99.0}
    entries = [replace(e, by_seed={0: far.get(e.at["method"], 70.0)}) for e in summary.entries]
    many = [replace(e, at={**e.at}, by_seed={0: 70.0 + n}) for n, e in enumerate(summary.entries * 3)]
    figure = drawn(replace(summary, entries=[*entries, *many]))["overview"]
    first = panels(figure)[0]
    low, high = first.get_xlim()
    assert low > 1.0
    assert high > 99.0
    assert [line.get_marker() for line in first.get_lines() if line.get_label() == "_far"] == ["<"]
    assert "beyond the axis" in key(figure)


def test_what_is_a_little_below_equals_stays_on_the_axis(tmp_path: Path) -> None:
    summary = made_up(tmp_path, HEAD)
    entries = [replace(e, by_seed={0: 81.0 if e.at["method"] == "Local" else 84.0}) for e in summary.entries]
    same = [replace(e, by_seed={0: 84.0 + 0.01 * n}) for n, e in enumerate(summary.entries * 3)]
    figure = drawn(replace(summary, entries=[*entries, *same]))["overview"]
    assert panels(figure)[0].get_xlim()[0] < 81.0
    assert "beyond the axis" not in key(figure)
