"""Estimates of the time left, from the cells that are done."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedquilt.studies.cell_times import CellTimes
from support.tiny_studies import cells_of, study_of


def test_time_left_is_not_known_before_the_first_and_then_by_method_and_graph(tmp_path: Path) -> None:
    cells = cells_of(study_of(tmp_path, seeds=1))  # Local, FedAvg, FED-PUB with 2 and 3 clients
    times = CellTimes()
    assert math.isnan(times.left(cells, 1))
    assert times.left([], 1) == 0
    times.add(cells[0], 2.0)
    assert times.left(cells, 1) == pytest.approx(12.0)
    times.add(cells[2], 10.0)
    times.add(cells[3], 20.0)
    # Local 2 s, FedAvg 15 s, others the mean of all, 32 / 3 s.
    assert times.left(cells, 2) == pytest.approx((2 * 2 + 2 * 15 + 2 * 32 / 3) / 2)
