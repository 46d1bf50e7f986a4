from __future__ import annotations

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.run_plot import run_figure

RESULT = {"method": "m", "dataset": "d", "clients": 2, "metric": "accuracy", "seeds": [{"seed": 0, "best_round": 1}]}


def record(round: int, tests: list[float | None]) -> dict:
    return {"round": round, "val": 10.0 * round, "test": 20.0, "clients": {"val": [1.0, 2.0], "test": tests}}


def test_bars_are_of_the_best_round_and_an_undefined_metric_has_none() -> None:
    figure = run_figure(RESULT, {0: [record(0, [1.0, 2.0]), record(1, [30.0, None])]})
    rounds, clients = figure.axes
    assert list(rounds.get_lines()[0].get_ydata()) == [0.0, 10.0]
    assert clients.patches[0].get_height() == 30.0
    assert clients.patches[1].get_height() != clients.patches[1].get_height()


def test_a_run_without_an_evaluation_cannot_be_drawn() -> None:
    with pytest.raises(FedquiltError, match="no evaluated round"):
        run_figure(RESULT, {0: []})
