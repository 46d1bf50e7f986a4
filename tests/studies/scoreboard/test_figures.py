"""The figures of the scoreboard: what is drawn is what was found."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedquilt.reports.style import styled
from fedquilt.studies.scoreboard.costs import Cost, method_costs
from fedquilt.studies.scoreboard.figures import all_figures, cost_figure, rank_figure, title_of, verdict_figure
from fedquilt.studies.scoreboard.ranking import rank_methods, ranked_places
from fedquilt.studies.scoreboard.verdicts import Verdicts
from support.scoreboards import tuned


def test_ranks_costs_and_verdicts_are_drawn(tmp_path: Path) -> None:
    values = np.array([60.0, 62.0, 62.5, 70.0])[:, None, None] + np.random.default_rng(1).normal(0, 0.8, (4, 8, 2))
    costs = {"local": (0.1, 0.0), "fedavg": (0.2, 4.0), "fedpub": (0.8, 2.0), "quilt": (0.4, 2.0)}
    places = ranked_places({"one": tuned(tmp_path, values, costs=costs)})
    ranking = rank_methods(places)
    assert ranking is not None
    with styled():
        figure = rank_figure(ranking)
        (axes,) = figure.axes
        assert [text.get_text().split("  ")[0] for text in axes.get_yticklabels()] == [
            title_of(n) for n in ranking.methods
        ]
        dots = [line for line in axes.lines if line.get_marker() == "o"]
        assert [line.get_xdata()[0] for line in dots] == list(ranking.means)
        bars = [line for line in axes.lines if line.get_linewidth() == 2.2]
        assert len(bars) == len(ranking.alike())
        (axes,) = verdict_figure([Verdicts("a-b-1", "A, Table 1: x", 2, 1, 1, 4)]).axes
        assert [patch.get_width() for patch in axes.patches] == [50, 25, 25]
    names = [name for name, _ in all_figures([ranking], method_costs(places), [Verdicts("a", "b", not_run=3)])]
    assert names == ["ranks-1", "costs", "bytes"]
    assert list(all_figures([], [], [])) == []


def test_names_lie_on_no_point_and_what_is_far_below_is_drawn_at_the_edge() -> None:
    costs = [
        Cost(f"m{n}", 3, gain, 1 + n % 3, 0.0 if n else 1.0, 1.0, 1.0)
        for n, gain in enumerate([0, 0.1, 0.2, 1, 2, -40])
    ]
    with styled():
        (axes,) = cost_figure(costs, "time", "Time").axes
    assert sorted(text.get_text() for text in axes.texts) == ["m0", "m1", "m2", "m3", "m4", "m5 (-40.0)"]
    assert axes.get_ylim()[0] > -10
    places = [tuple(np.round(text.xyann, 1)) + tuple(np.round(text.xy, 3)) for text in axes.texts]
    assert len(set(places)) == len(places)
