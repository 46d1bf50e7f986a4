"""The figure of a search."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from fedquilt.tuning.history_figure import draw_history, history_figure
from fedquilt.tuning.outcome import Trial

TRIALS = [
    Trial(1, {}, 70.0, "done"),
    Trial(2, {}, 68.0, "done"),
    Trial(3, {}, None, "stopped"),
    Trial(4, {}, 75.0, "done"),
    Trial(5, {}, None, "failed"),
]


def test_trials_the_best_so_far_the_defaults_and_what_ended_early_are_drawn() -> None:
    (axes,) = history_figure(TRIALS, "accuracy", "FedAvg on cora").axes
    assert axes.collections[0].get_offsets().tolist() == [[1, 70], [2, 68], [4, 75]]
    best, defaults, ended = axes.get_lines()
    assert [list(best.get_xdata()), list(best.get_ydata())] == [[1, 2, 4, 5], [70, 70, 75, 75]]
    assert set(defaults.get_ydata()) == {70.0}
    assert list(ended.get_xdata()) == [3, 5]
    assert axes.get_ylabel() == "Accuracy (%), validation"


def test_without_a_value_of_the_defaults_there_is_no_line_for_them(tmp_path: Path) -> None:
    trials = [Trial(1, {}, None, "failed"), Trial(2, {}, 68.0, "done")]
    (axes,) = history_figure(trials, "accuracy", "t").axes
    assert [line.get_label() for line in axes.get_lines()] == ["best so far", "ended early"]
    draw_history(trials, "accuracy", "t", tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")
