"""Ranks over places: which count, their intervals, and who can be told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata, wilcoxon

from fedquilt.studies.scoreboard.ranking import _interval, _ranks, largest_block, rank_methods, ranked_places, rankings
from fedquilt.studies.significance import holm
from support.scoreboards import METHODS, tuned


def test_ranks_are_those_of_scipy() -> None:
    scores = np.array([3.0, 1.0, 3.0, 9.0, -2.0])
    assert _ranks(scores) == pytest.approx(rankdata(-scores))


def test_the_ranking_of_four_methods(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values = np.array([60.0, 62.0, 62.5, 70.0])[:, None, None] + rng.normal(0, 0.8, (4, 12, 3))
    ranking = rank_methods(ranked_places({"one": tuned(tmp_path, values)}))
    assert ranking is not None
    assert ranking.methods[0] == "quilt"
    assert ranking.methods[-1] == "local"
    order = [METHODS.index(name) for name in ranking.methods]
    means = values.mean(axis=2)
    assert ranking.means == pytest.approx(rankdata(-means, axis=0).mean(axis=1)[order])
    assert (ranking.low <= ranking.means).all()
    assert (ranking.high >= ranking.means).all()
    pairs = [(a, b) for place, a in enumerate(ranking.methods) for b in ranking.methods[place + 1 :]]
    raw = [wilcoxon(means[METHODS.index(a)] - means[METHODS.index(b)]).pvalue for a, b in pairs]
    assert [ranking.p[frozenset(pair)] for pair in pairs] == pytest.approx(holm(raw))
    middle = frozenset(("fedavg", "fedpub"))
    assert ranking.alike() == ([(1, 2)] if ranking.p[middle] >= 0.05 else [])
    assert (len(ranking.places), len(ranking.graphs), ranking.fewer) == (12, 12, {})


def test_a_place_that_two_studies_have_counts_once_and_the_first_has_the_say(tmp_path: Path) -> None:
    first = tuned(tmp_path, np.full((4, 3, 2), 1.0))
    again = tuned(tmp_path, np.full((4, 3, 2), 2.0), "two")
    places = ranked_places({"one": first, "two": again})
    assert len(places) == 3
    assert {entry.mean for place in places for entry in place.entries.values()} == {1.0}
    other = tuned(tmp_path, np.full((4, 3, 2), 2.0), "three", options={"rounds": 7})
    assert len(ranked_places({"one": first, "three": other})) == 6
    fresh = tuned(tmp_path, np.full((4, 3, 2), 2.0), "four")
    fresh = type(fresh)(
        type(fresh.summary)(
            fresh.study.model_copy(update={"seed_list": [3, 4], "choose_on_list": [0]}),
            fresh.summary.entries,
            [],
            {},
            [],
            {},
            {},
        ),
        {},
    )
    both = ranked_places({"one": first, "four": fresh})
    assert len(both) == 6
    assert [place.fresh for place in both] == [False] * 3 + [True] * 3  # seed 0 chooses, 3 and 4 are reported


def test_studies_that_tune_nobody_and_rows_that_are_variants_are_left_out(tmp_path: Path) -> None:
    result = tuned(tmp_path, np.ones((4, 2, 1)))
    plain = result.study.model_copy(update={"tuned": False})
    summary = type(result.summary)(plain, result.summary.entries, [], {}, [], {}, {})
    assert ranked_places({"one": type(result)(summary, {})}) == []
    (place, _) = ranked_places({"one": result})
    assert sorted(place.entries) == sorted(METHODS)
    assert place.label == "g0"


def test_methods_that_were_run_at_few_places_are_left_out_and_named(tmp_path: Path) -> None:
    values = np.arange(4 * 6 * 2, dtype=float).reshape(4, 6, 2)
    values[3, 2:] = np.nan  # quilt, at two of six places
    places = ranked_places({"one": tuned(tmp_path, values)})
    chosen, whole = largest_block(places)
    assert (sorted(chosen), len(whole)) == (["fedavg", "fedpub", "local"], 6)
    both = rankings(places)  # neither the baselines nor the papers' methods and ours are passed over
    assert [(sorted(one.methods), len(one.places)) for one in both] == [
        (["fedavg", "fedpub", "local"], 6),
        (sorted(METHODS), 2),
    ]
    assert [one.fewer for one in both] == [{"quilt": 2}, {}]
    names = (*METHODS, "fednova", "feddyn", "scaffold", "ditto")
    more = np.concatenate([values[:3, :, :], np.ones((5, 6, 2))])
    more[4:, 4:] = np.nan  # the further ones, at four of six places
    both = rankings(ranked_places({"one": tuned(tmp_path, more, methods=names)}))
    assert [(sorted(one.methods), len(one.places)) for one in both] == [(sorted(names), 4), (sorted(METHODS), 6)]
    values[3, 1:] = np.nan
    (only,) = rankings(ranked_places({"one": tuned(tmp_path, values)}))
    assert only.fewer == {"quilt": 1}
    assert rankings(places[:1]) == rankings([]) == []


def test_whole_graphs_are_drawn_where_there_are_three() -> None:
    ranks = np.array([[1.0, 2.0]] * 4 + [[2.0, 1.0]] * 4 + [[1.5, 1.5]] * 4)
    alike = _interval(ranks, ["a"] * 12)
    grouped = _interval(ranks, [g for g in "abc" for _ in range(4)])
    assert (grouped[1] - grouped[0] > alike[1] - alike[0]).all()
