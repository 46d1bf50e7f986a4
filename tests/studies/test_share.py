"""Shares: every cell is in one of them, and a place's cells are together."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.studies.share import Share
from support.tiny_studies import cells_of, study_of

RATES = [{"lr": 0.1}, {"lr": 0.2}]


@pytest.mark.parametrize("text", ["", "2", "0/4", "5/4", "1/0", "a/b", "1/99999999999", "-1/2"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(FedquiltError, match="A share is written like 2/4"):
        Share.parse(text)


def test_all_cells_are_in_one_part_each_with_those_of_their_place(tmp_path: Path) -> None:
    axes = {"method": [{"label": "A", "method": "local", "candidates": RATES}, "fedavg"], "clients": [2, 3, 4, 5]}
    study = study_of(tmp_path, axes=axes, seeds=3)
    cells = cells_of(study)
    parts = [Share.parse(f"{part}/3").keys(study, cells) for part in (1, 2, 3)]
    assert sorted(key for part in parts for key in part) == sorted(cell.key for cell in cells)
    assert sum(map(bool, parts)) > 1
    for place in {cell.place for cell in cells}:
        mine = {cell.key for cell in cells if cell.place == place}
        assert sum(bool(mine & part) for part in parts) == 1


def test_places_that_choose_elsewhere_are_with_those_that_choose(tmp_path: Path) -> None:
    axes = {"method": [{"label": "A", "method": "local", "candidates": RATES}], "clients": [2, 3, 4, 5]}
    study = study_of(tmp_path, axes=axes, choose_at={"clients": {2: 3, 4: 3, 5: 3}})
    cells = cells_of(study)
    found = [Share(part, 4).keys(study, cells) for part in (1, 2, 3, 4)]
    assert sorted(map(len, found)) == [0, 0, 0, len(cells)]
