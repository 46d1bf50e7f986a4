"""Means, deviations, ranks and verdicts, against a few lines of NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import rankdata

from fedquilt.studies.published import Published
from fedquilt.studies.summary import Entry
from support.tiny_studies import grid_study, scored

ROWS, COLUMNS, SEEDS = 4, 3, 3
# Few different numbers, so that there are ties; NaN is a run that is not there.
numbers = st.sampled_from([10.0, 20.0, 20.5, 30.25, math.nan])
tables = arrays(np.float64, (ROWS, COLUMNS, SEEDS), elements=numbers)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("grid")
    return {
        better: grid_study(folder, ROWS, COLUMNS, better={"test": better}) for better in ("higher", "lower", "neither")
    }


def means_of(values: np.ndarray) -> np.ndarray:
    """[rows, columns], over the seeds that are there."""
    return np.array([[np.mean(v[~np.isnan(v)]) if (~np.isnan(v)).any() else np.nan for v in row] for row in values])


@given(tables)
def test_means_and_deviations_are_over_the_seeds_that_are_done(studies: Any, values: np.ndarray) -> None:
    for entry, row in zip(scored(studies["higher"], values).entries, values.reshape(-1, SEEDS), strict=True):
        there = row[~np.isnan(row)]
        assert math.isnan(entry.mean) if not there.size else entry.mean == pytest.approx(there.mean())
        assert math.isnan(entry.std) if there.size < 2 else entry.std == pytest.approx(there.std(ddof=0))


@given(tables, st.sampled_from(["higher", "lower"]))
def test_ranks_with_ties_are_those_of_scipy(studies: Any, values: np.ndarray, better: str) -> None:
    summary = scored(studies[better], values)
    means = means_of(values)
    ranks = summary.ranks("test")
    for c in range(COLUMNS):
        there = np.flatnonzero(~np.isnan(means[:, c]))
        expected = rankdata((-1 if better == "higher" else 1) * means[there, c], method="average")
        for r, rank in zip(there, expected, strict=True):
            assert ranks[("ABCD"[r],), (str(c + 2),)] == rank
    assert len(ranks) == int((~np.isnan(means)).sum())


@given(tables)
def test_mean_ranks_are_over_columns_where_no_row_is_missing(studies: Any, values: np.ndarray) -> None:
    summary = scored(studies["higher"], values)
    means = means_of(values)
    rows = np.flatnonzero((~np.isnan(means)).any(axis=1))
    whole = [c for c in range(COLUMNS) if not np.isnan(means[rows, c]).any()] if rows.size else []
    found = summary.mean_ranks("test")
    if len(rows) < 2 or not whole:
        assert found == {}
        return
    ranks = np.stack([rankdata(-means[rows, c]) for c in whole])
    assert found == {("ABCD"[r],): pytest.approx(rank) for r, rank in zip(rows, ranks.mean(axis=0), strict=True)}


def test_facts_about_graphs_have_no_ranks(studies: Any) -> None:
    summary = scored(studies["neither"], np.ones((ROWS, COLUMNS, SEEDS)))
    assert summary.ranks("test") == summary.mean_ranks("test") == {}


@pytest.mark.parametrize(
    ("better", "ours", "printed", "verdict"),
    [
        ("higher", 70.0, 70.0, "exceeded"),
        ("higher", 71.0, 70.0, "exceeded"),
        ("higher", 69.0, 70.0, "reached"),
        ("higher", 68.99, 70.0, "missed"),
        ("lower", 70.0, 70.0, "exceeded"),
        ("lower", 69.0, 70.0, "exceeded"),
        ("lower", 71.0, 70.0, "reached"),
        ("lower", 71.01, 70.0, "missed"),
        ("neither", 101.0, 100.0, "reached"),
        ("neither", 99.0, 100.0, "reached"),
        ("neither", 101.1, 100.0, "missed"),
        ("neither", 98.9, 100.0, "missed"),
        ("neither", 0.0, 0.0, "reached"),
        ("higher", math.nan, 70.0, ""),
        ("higher", 70.0, math.nan, ""),
    ],
)
def test_verdicts(better: str, ours: float, printed: float, verdict: str) -> None:
    found = {} if math.isnan(ours) else {0: ours}
    entry = Entry({}, "test", found, published=Published({}, "test", printed, math.nan), better=better)
    assert entry.verdict == verdict


@given(tables, st.data())
def test_verdicts_are_counted_over_the_published_numbers(studies: Any, values: np.ndarray, data: Any) -> None:
    places = [(r, c) for r in range(ROWS) for c in range(COLUMNS)]
    printed = data.draw(st.dictionaries(st.sampled_from(places), st.sampled_from([9.5, 10.5, 20.25, 29.0, math.nan])))
    means = means_of(values)
    counts = {"exceeded": 0, "reached": 0, "missed": 0, "not run": 0}
    for at, number in printed.items():
        if math.isnan(number):
            continue
        behind = number - means[at]
        which = "not run" if math.isnan(behind) else "missed" if behind > 1 else "reached" if behind > 0 else "exceeded"
        counts[which] += 1
    assert scored(studies["higher"], values, printed).verdicts("test") == counts
