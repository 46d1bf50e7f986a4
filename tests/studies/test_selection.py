"""Which candidate counts: by validation on the seeds and at the places that the study names, whatever the test says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.studies.cells import Cell
from fedquilt.studies.gather import summarise
from fedquilt.studies.selection import (
    compared_cells,
    later_cells,
    later_count,
    selected_candidates,
    selected_cells,
)
from fedquilt.studies.spec import Study
from fedquilt.studies.store import CellStore, StoredCell
from support.tiny_studies import cells_of, store_cell, study_of

RATES = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
AXES = {"method": [{"label": "A", "method": "local", "candidates": RATES}, "fedavg"], "clients": [2, 3]}


def tuned(folder: Path, choose_on: int = 2, seeds: int = 3) -> tuple[Study, list[Cell]]:
    study = study_of(folder, axes=AXES, choose_on=choose_on, seeds=seeds)
    return study, cells_of(study)


def kept(vals: dict[tuple[int, int], float | None], cells: list[Cell], clients: str = "2") -> dict[str, StoredCell]:
    """By candidate and seed, validation at A and `clients`."""
    return {
        cell.identity: StoredCell(Path(), {"measures": {"val": vals[cell.candidate, cell.seed], "test": 1.0}})
        for cell in cells
        if cell.place == ("A", clients) and (cell.candidate, cell.seed) in vals
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, list[Cell]]:
    return tuned(tmp_path_factory.mktemp("choosing"))


@given(st.lists(st.sampled_from([None, 1.0, 2.0, 3.5]), min_size=9, max_size=9))
def test_the_best_mean_validation_on_the_first_seeds_is_chosen(both: Any, found: list[float | None]) -> None:
    study, cells = both
    table = np.array([np.nan if v is None else v for v in found]).reshape(3, 3)  # candidates, seeds
    vals = {(c, s): found[3 * c + s] for c in range(3) for s in range(3)}
    means = np.nan_to_num(table[:, :2].mean(axis=1), nan=-np.inf)  # the third seed is not looked at
    assert selected_candidates(study, cells, kept(vals, cells)) == {("A", "2"): int(means.argmax())}


def test_those_with_most_seeds_done_are_compared_and_nothing_done_chooses_nothing(both: Any) -> None:
    study, cells = both
    assert selected_candidates(study, cells, {}) == {}
    assert selected_cells(study, cells, {}) == []
    half = kept({(0, 0): 1.0, (1, 0): 9.0, (2, 0): 3.0, (2, 1): 3.0, (1, 2): 9.0}, cells)
    assert selected_candidates(study, cells, half) == {("A", "2"): 2}


def test_counting_are_all_seeds_of_what_was_chosen(both: Any) -> None:
    study, cells = both
    found = kept({(0, 0): 1.0, (0, 1): 1.0, (1, 0): 9.0, (1, 1): 9.0}, cells)
    assert [(c.place, c.candidate, c.seed) for c in selected_cells(study, cells, found)] == [
        (("A", "2"), 1, seed) for seed in range(3)
    ]


@settings(max_examples=4)
@given(st.integers(0, 1000))
def test_permuting_the_test_values_changes_nothing_in_what_is_chosen(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("permuted")
    study, cells = tuned(folder)
    rng = random.Random(seed)
    vals, tests = [rng.random() for _ in cells], [rng.random() for _ in cells]
    settings, means = [], []
    for turn in range(2):
        store = CellStore(folder / str(turn))
        for cell, val, test in zip(cells, vals, tests, strict=True):
            store_cell(store, cell, val=val, test=test)
        summary = summarise(study, cells, [], [], store)
        settings.append([entry.settings for entry in summary.entries])
        means.append([entry.mean for entry in summary.entries])
        rng.shuffle(tests)
    assert settings[0] == settings[1]
    assert means[0] != means[1]


ELSEWHERE: dict[str, Any] = {"choose_on": [7], "choose_at": {"clients": {3: 2}}, "seeds": [4, 5], "axes": AXES}


def test_another_seed_and_another_place_may_choose_and_are_not_reported(tmp_path: Path) -> None:
    study = study_of(tmp_path, **ELSEWHERE)
    cells = cells_of(study)
    compared = compared_cells(study, cells)
    assert {(c.place, c.seed) for c in compared} == {(("A", "2"), 7), (("fedavg", "2"), 7)}
    assert {c.candidate for c in compared if c.place[0] == "A"} == {0, 1, 2}
    assert {c.seed for c in cells if c.place[1] == "3"} == {4, 5}  # nothing is compared there
    assert later_count(study, cells) == 8  # two methods, two client counts, two seeds
    store = CellStore(tmp_path / "studies")
    for cell in compared:
        store_cell(store, cell, val=[1.0, 3.0, 2.0][cell.candidate], test=0.0)
    later = later_cells(study, cells, store.by_identity())
    assert {(c.place, c.candidate, c.seed) for c in later if c.place[0] == "A"} == {
        (("A", clients), 1, seed) for clients in "23" for seed in (4, 5)
    }
    for cell in later:
        store_cell(store, cell, val=0.0, test=float(cell.seed))
    summary = summarise(study, cells, [], [], store)
    assert {tuple(entry.by_seed.items()) for entry in summary.entries} == {((4, 4.0), (5, 5.0))}
    assert [entry.settings for entry in summary.entries if entry.at["method"] == "A"] == [{"lr": 0.2}] * 2
    assert summary.seeds == 2
    assert summary.done == (8, 8)


def test_fewer_seeds_than_a_study_names_are_its_first(tmp_path: Path) -> None:
    study = study_of(tmp_path, **ELSEWHERE)
    assert {cell.seed for cell in cells_of(study, seeds=1)} == {4, 7}
