"""Who can be told apart, against SciPy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ttest_rel, wilcoxon

from fedquilt.studies.significance import against, corrected, holm, pairs, reference_row, swapped
from support.tiny_studies import grid_study, scored

SEEDS = 4
numbers = st.sampled_from([10.0, 11.0, 12.5, 13.0, 20.0, 20.25, 31.0])


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    folder = tmp_path_factory.mktemp("pairs")
    return {
        (better, columns): grid_study(folder, 3, columns, better={"test": better})
        for better in ("higher", "lower", "neither")
        for columns in (5, 6, 8)
    }


def t_test(a: np.ndarray, b: np.ndarray) -> int:
    """The paired t-test over seeds: 1 where the first is higher, -1 where it is lower, 0 where nobody knows."""
    apart = a - b
    if not apart.any():
        return 0
    if np.ptp(apart) < 1e-12:
        return int(np.sign(apart[0]))
    return int(np.sign(apart.mean())) if ttest_rel(a, b).pvalue < 0.05 else 0


@pytest.mark.filterwarnings("ignore:.*recision loss.*")
@pytest.mark.parametrize("columns", [5, 6, 8])
@settings(max_examples=8)
@given(data=st.data(), better=st.sampled_from(["higher", "lower"]))
def test_pairs_are_those_of_scipy(studies: Any, columns: int, data: Any, better: str) -> None:
    values = data.draw(arrays(np.float64, (3, columns, SEEDS), elements=numbers))
    sign = 1 if better == "higher" else -1
    found = pairs(scored(studies[better, columns], values), "test")
    assert [(pair.first, pair.second) for pair in found] == [("A", "B"), ("A", "C"), ("B", "C")]
    for pair in found:
        a, b = values["ABC".index(pair.first)], values["ABC".index(pair.second)]
        ahead = sign * (a.mean(axis=1) - b.mean(axis=1))
        assert (pair.columns, pair.wins, pair.losses) == (columns, (ahead > 0).sum(), (ahead < 0).sum())
        assert pair.difference == pytest.approx(ahead.mean())
        if columns < 6:
            assert math.isnan(pair.wilcoxon)
        elif not ahead.any():
            assert pair.wilcoxon == 1.0
        else:
            assert pair.wilcoxon == pytest.approx(wilcoxon(ahead).pvalue, nan_ok=True)
        by_seed = [sign * t_test(x, y) for x, y in zip(a, b, strict=True)]
        assert (pair.better_seeds, pair.worse_seeds) == (by_seed.count(1), by_seed.count(-1))


def test_seeds_that_only_one_of_two_has_are_left_out(studies: Any) -> None:
    values = np.full((3, 6, SEEDS), 10.0)
    values[0] = [[20.0, 20.1, 20.2, math.nan]] * 6
    values[1] = [[10.0, 10.2, 10.1, 900.0]] * 6
    first = pairs(scored(studies["higher", 6], values), "test")[0]
    assert first.better_seeds == 6


def test_identical_rows_cannot_be_told_apart(studies: Any) -> None:
    values = np.broadcast_to(np.arange(6.0)[None, :, None], (3, 6, SEEDS))
    for pair in pairs(scored(studies["higher", 6], values), "test"):
        assert (pair.wilcoxon, pair.wins, pair.losses, pair.difference) == (1.0, 0, 0, 0.0)
        assert pair.better_seeds == pair.worse_seeds == 0


def test_the_smallest_p_of_six_columns_is_below_one_in_twenty(studies: Any) -> None:
    values = np.zeros((3, 6, SEEDS))
    values[0] += np.arange(1, 7)[:, None]
    assert pairs(scored(studies["higher", 6], values), "test")[0].wilcoxon == pytest.approx(2 / 64)


@settings(max_examples=8)
@given(arrays(np.float64, (3, 6, SEEDS), elements=numbers), st.sampled_from("ABC"))
def test_seen_from_the_other_side_a_pair_is_the_same(studies: Any, values: np.ndarray, reference: str) -> None:
    summary = scored(studies["higher", 6], values)
    for pair in pairs(summary, "test"):
        assert swapped(swapped(pair)) == pair
    for pair in against(summary, "test", reference):
        assert pair.first == reference
        mirrored = scored(studies["higher", 6], values[::-1])  # rows A and C change places
        swap = {"A": "C", "B": "B", "C": "A"}
        (other,) = [one for one in against(mirrored, "test", swap[reference]) if one.second == swap[pair.second]]
        assert (other.wins, other.losses, other.better_seeds, other.worse_seeds) == (
            pair.wins,
            pair.losses,
            pair.better_seeds,
            pair.worse_seeds,
        )
        assert other.difference == pytest.approx(pair.difference)
        assert other.wilcoxon == pytest.approx(pair.wilcoxon, nan_ok=True)
    assert len(against(summary, "test", reference)) == 2


def test_rows_without_a_shared_column_make_no_pair(studies: Any) -> None:
    values = np.full((3, 5, SEEDS), math.nan)
    values[0, 0] = values[1, 1] = values[2, 1] = 1.0
    assert [(p.first, p.second, p.columns) for p in pairs(scored(studies["higher", 5], values), "test")] == [
        ("B", "C", 1)
    ]


def test_facts_make_no_pairs(studies: Any) -> None:
    summary = scored(studies["neither", 5], np.ones((3, 5, SEEDS)))
    assert pairs(summary, "test") == []
    assert reference_row(summary, "test") is None


def test_the_reference_is_the_papers_own_method_else_the_best(tmp_path: Path) -> None:
    values = np.zeros((5, 2, 2))
    values[1] += 1  # B is the best
    study = grid_study(tmp_path, 5, 2)
    assert reference_row(scored(study, values), "test") == "B"
    paper = study.model_copy(update={"name": "fedpub-table-77"})
    assert reference_row(scored(paper, values), "test") == "E"  # fedpub
    values[4] = math.nan
    assert reference_row(scored(paper, values), "test") == "B"


@pytest.mark.parametrize(("better", "expected"), [("higher", (0, 6, 0, 6)), ("lower", (6, 0, 6, 0))])
def test_where_less_is_better_the_lower_row_wins(studies: Any, better: str, expected: tuple[int, ...]) -> None:
    values = np.zeros((3, 6, SEEDS))
    values[0] = [1.0, 1.1, 1.2, 1.3]
    values[1] = [5.0, 5.2, 5.1, 5.3]
    pair = pairs(scored(studies[better, 6], values), "test")[0]
    assert (pair.wins, pair.losses, pair.better_seeds, pair.worse_seeds) == expected
    assert pair.difference == pytest.approx(4.0 if better == "lower" else -4.0)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, math.nan, 0.03, 0.005]) == pytest.approx([0.03, 0.06, math.nan, 0.06, 0.02], nan_ok=True)
    assert holm([0.5, 0.6, 0.9]) == [1.0, 1.0, 1.0]
    assert holm([]) == []


def test_what_one_of_many_comparisons_finds_by_chance_is_not_told(studies: Any) -> None:
    values = np.zeros((3, 6, SEEDS))
    values[0] += np.arange(1, 7)[:, None]
    values[1] += [0.0, 0.1, 0.2, 0.3]
    values[2, 0] += [10.0, 10.4, 10.2, 10.3]
    summary = scored(studies["higher", 6], values)
    alone = [pair for pair in pairs(summary, "test") if pair.first == "A"]
    assert [pair.wilcoxon for pair in alone] == pytest.approx([2 / 64, wilcoxon([-9, 2, 3, 4, 5, 6]).pvalue], abs=0.01)
    together = against(summary, "test", "A")
    assert together[0].wilcoxon == pytest.approx(2 * alone[0].wilcoxon)
    tests = [p for pair in alone for _, p in pair.seed_tests]
    assert [p for pair in together for _, p in pair.seed_tests] == pytest.approx(holm(tests))
    assert together[0].better_seeds <= alone[0].better_seeds
    assert corrected(alone) == together
