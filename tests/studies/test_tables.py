"""A summary laid out as tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedquilt.studies.gather import summarise
from fedquilt.studies.sentences import legend
from fedquilt.studies.store import CellStore
from fedquilt.studies.tables import (
    ReportTable,
    TableEntry,
    all_tables,
    margin_table,
    number,
    pair_table,
    rank_table,
    result_tables,
    settings_table,
)
from support.tiny_studies import cells_of, grid_study, scored, store_cell, study_of

numbers = st.sampled_from([10.0, 20.0, 20.5, 30.25, math.nan])


def texts(grid: ReportTable | None) -> dict[str, list[str]]:
    assert grid is not None
    return {label: [cell.text for cell in cells] for label, cells in grid.rows}


def bold(grid: ReportTable) -> list[list[bool]]:
    return [[cell.best for cell in cells] for _, cells in grid.rows]


def test_a_cell_has_our_number_the_published_one_the_difference_and_the_verdict(tmp_path: Path) -> None:
    study = grid_study(tmp_path, 2, 2)
    values = [[[60.0, 62.0], [1.0, math.nan]], [[70.0, 70.0], [math.nan, math.nan]]]
    (grid,) = result_tables(scored(study, values, {(0, 0): 61.5, (1, 0): 70.0, (1, 1): 5.0}))
    assert (grid.head, grid.columns, grid.title) == ("Method", ("2 clients", "3 clients"), "Test metric (%)")
    assert grid.rows == (
        ("A", (TableEntry("61.00 ± 1.00", "61.50", "-0.50", "reached"), TableEntry("1.00 (1 of 2)", best=True))),
        ("B", (TableEntry("70.00 ± 0.00", "70.00", "+0.00", "exceeded", best=True), TableEntry("–", "5.00"))),
    )


@settings(max_examples=15)
@given(arrays(np.float64, (4, 3), elements=numbers), st.sampled_from(["higher", "lower"]))
def test_the_best_of_a_column_are_all_with_the_best_mean(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, better: str
) -> None:
    study = grid_study(tmp_path_factory.mktemp("s"), 4, 3, better={"test": better})
    summary = scored(study, values[:, :, None])
    if np.isnan(values).all():
        assert list(result_tables(summary)) == []
        return
    (grid,) = result_tables(summary)
    best = max if better == "higher" else min
    top = {c: best(values[:, c][~np.isnan(values[:, c])], default=math.nan) for c in range(3)}
    assert bold(grid) == [[values[r, c] == top[c] for c in range(3)] for r in range(4)]


def test_three_equals_are_all_best(tmp_path: Path) -> None:
    summary = scored(grid_study(tmp_path, 4, 1), [[[5.0]], [[7.0]], [[7.0]], [[7.0]]])
    (grid,) = result_tables(summary)
    assert bold(grid) == [[False], [True], [True], [True]]
    best_in = {label: row[1] for label, row in texts(rank_table(summary, "test")).items()}
    assert best_in == {"A": "0", "B": "1", "C": "1", "D": "1"}


def test_mean_ranks_wins_and_verdicts_are_a_line_a_row(tmp_path: Path) -> None:
    values = np.array([[1.0, 5.0], [2.0, 3.0], [3.0, 4.0]])[:, :, None]
    summary = scored(grid_study(tmp_path, 3, 2), values, {(0, 0): 0.5, (0, 1): 5.5, (2, 0): 9.0})
    assert texts(rank_table(summary, "test")) == {
        "C": ["1.50", "1", "0", "0", "1"],
        "A": ["2.00", "1", "1", "1", "0"],
        "B": ["2.50", "0", "–", "–", "–"],
    }
    assert rank_table(scored(grid_study(tmp_path, 1, 2), values[:1]), "test") is None


def test_margins_over_local_are_means_of_differences(tmp_path: Path) -> None:
    values = np.array([[1.0, 5.0, 2.0], [2.0, 7.0, 5.5], [4.0, math.nan, 9.0]])[:, :, None]
    printed = {(0, 0): 10.0, (0, 2): 20.0, (1, 0): 12.0, (1, 1): 3.0, (1, 2): 21.0, (2, 1): 4.0}
    grid = margin_table(scored(grid_study(tmp_path, 3, 3), values, printed), "test")
    assert grid is not None
    assert grid.title == "Margin over A, Test metric (%)"
    # B: (1 + 2 + 3.5) / 3; where printed (1 + 3.5) / 2; printed (2 + 1) / 2. C: (3 + 7) / 2.
    assert texts(grid) == {"B": ["+2.17", "+2.25", "+1.50"], "C": ["+5.00", "–", "–"]}


def test_a_column_without_local_has_no_margin(tmp_path: Path) -> None:
    study = grid_study(tmp_path, 2, 2, skip=[{"method": "A", "clients": 3}])
    summary = scored(study, np.array([[1.0, 9.0], [2.0, 50.0]])[:, :, None])
    entries = [entry for entry in summary.entries if entry.at != {"method": "A", "clients": "3"}]
    summary = type(summary)(study, entries, [], {}, [], {}, {})
    assert texts(margin_table(summary, "test")) == {"B": ["+1.00"]}


def test_a_study_without_published_numbers_has_no_columns_for_them(tmp_path: Path) -> None:
    summary = scored(grid_study(tmp_path, 2, 2), np.array([[1.0, 9.0], [2.0, 8.0]])[:, :, None])
    ranks, margins = rank_table(summary, "test"), margin_table(summary, "test")
    assert ranks is not None
    assert margins is not None
    assert (ranks.columns, margins.columns) == (("Mean rank", "Best in"), ("Ours",))
    assert texts(ranks) == {"A": ["1.50", "1"], "B": ["1.50", "1"]}
    assert "published" not in legend(summary)
    assert "published" in legend(scored(grid_study(tmp_path, 1, 1), [[[1.0]]], {(0, 0): 2.0}))


def test_no_margins_where_less_is_better_or_there_is_no_local(tmp_path: Path) -> None:
    values = np.ones((3, 2, 1))
    assert margin_table(scored(grid_study(tmp_path, 3, 2, better={"test": "lower"}), values), "test") is None
    study = study_of(tmp_path, axes={"method": ["fedavg", "fedpub"], "clients": [2, 3]})
    assert margin_table(scored(study, values[:2]), "test") is None
    turned = study_of(tmp_path, rows=["clients"], columns=["method"])
    assert margin_table(scored(turned, values[:2].repeat(2, axis=1)[:, :3]), "test") is None


def test_pairs_are_held_against_the_reference(tmp_path: Path) -> None:
    values = np.arange(7.0)[None, :, None] + np.array([0.0, 2.0, 1.0])[:, None, None] + np.zeros((1, 1, 2))
    grid = pair_table(scored(grid_study(tmp_path, 3, 7), values), "test")
    assert texts(grid) == {  # 2 / 128 each, twice that by Holm
        "B against A": ["+2.00", "7 / 0 of 7", "0.031", "7 / 0"],
        "B against C": ["+1.00", "7 / 0 of 7", "0.031", "7 / 0"],
    }
    assert grid is not None
    assert bold(grid)[0] == [False, False, True, False]
    few = pair_table(scored(grid_study(tmp_path, 3, 2), values[:, :2]), "test")
    assert [row[2] for row in texts(few).values()] == ["–", "–"]
    assert pair_table(scored(grid_study(tmp_path, 1, 2), values[:1, :2]), "test") is None


def kept_summary(folder: Path, **changes: Any) -> Any:
    study, store = study_of(folder, **changes), CellStore(folder / "studies")
    cells = cells_of(study)
    for cell in cells:
        store_cell(store, cell, val=float(cell.candidate), test=50.0 + cell.candidate, cost=10.0)
    return summarise(study, cells, [], [], store)


def test_what_validation_chose_is_told_where_there_was_a_choice(tmp_path: Path) -> None:
    axes = {
        "method": [{"label": "A", "method": "local", "candidates": [{"lr": 0.1}, {"lr": 0.2}]}, "fedavg"],
        "clients": [2, 3],
    }
    overrides = [{"where": {"method": "A", "clients": 3}, "candidates": [{"hidden": 4}, {}]}]
    grid = settings_table(kept_summary(tmp_path, axes=axes, overrides=overrides))
    assert texts(grid) == {"A": ["lr=0.2: 2; defaults: 3"]}
    assert grid is not None
    assert not grid.numbers
    assert settings_table(kept_summary(tmp_path)) is None


def test_there_is_a_table_for_each_value_and_each_level_of_the_other_axes(tmp_path: Path) -> None:
    axes = {"partition": ["disjoint", "overlapping"], "method": ["local", "fedavg"], "rounds": [3, 4], "clients": [2]}
    summary = kept_summary(
        tmp_path,
        axes=axes,
        columns=["rounds", "clients"],
        values={"test": "Test", "cost": "Cost", "nodes": "Nodes"},
        better={"cost": "lower", "nodes": "neither"},
        seeds=1,
    )
    titles = [grid.title for grid in all_tables(summary)]
    parts = [f"{cut}, {rounds}" for cut in ("disjoint", "overlapping") for rounds in (3, 4)]
    assert titles == [
        *(f"{part}, {value}" for value in ("Test", "Cost") for part in parts),  # of nodes there is nothing
        *("Ranks, Test", "Margin over local, Test", "Who can be told apart, Test"),
        *("Ranks, Cost", "Who can be told apart, Cost"),
    ]


@pytest.mark.parametrize(
    ("value", "x", "text"),
    [
        ("test", 1234.567, "1,234.57"),
        ("clustering", 0.12345, "0.123"),
        ("nodes", 1234.5, "1,234"),
        ("seconds", 0.00123, "0.0012"),
    ],
)
def test_digits_suit_the_value(value: str, x: float, text: str) -> None:
    assert number(value, x) == text
