"""Estimates of the time left: from the cells that are done, from a formula, and from a short training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedquilt.runs.config import RunConfig
from fedquilt.studies import cell_times
from fedquilt.studies.cell_times import CellTimes, expected, measured_unit
from fedquilt.studies.store import StoredCell
from support.tiny_studies import cells_of, study_of


def test_time_left_is_not_known_before_the_first_and_then_by_method_and_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_times, "expected_of", lambda config: 4.0 if config["method"] == "fedpub" else 1.0)
    cells = cells_of(study_of(tmp_path, seeds=1))  # Local, FedAvg, FED-PUB with 2 and 3 clients
    times = CellTimes()
    assert math.isnan(times.left(cells, 1))
    assert [times.length(cell) for cell in cells] == [1, 1, 1, 1, 4, 4]
    assert times.left([], 1) == 0
    times.add(cells[0], 2.0)
    assert times.left(cells, 1) == pytest.approx(2 + 2 + 2 + 2 + 8 + 8)
    times.add(cells[2], 10.0)
    times.add(cells[3], 20.0)
    assert [times.of(cell) for cell in cells] == pytest.approx([2, 2, 10, 20, 4 * 32 / 3, 4 * 32 / 3])
    assert times.left(cells, 2, later=3) == pytest.approx((2 + 2 + 10 + 20 + 8 * 32 / 3 + 3 * 32 / 3) / 2)


def test_a_store_says_what_it_knows_of_this_device_and_these_graphs(tmp_path: Path) -> None:
    cell = cells_of(study_of(tmp_path, seeds=1))[0]
    config = cell.config.model_dump()
    facts = {"config": config, "seconds": 5.0, "device": "CPU"}
    strange = {
        "config": {"clients": "many", "settings": [], "dataset": "communities-3"},
        "seconds": 1.0,
        "device": "CPU",
    }
    others = [
        {"device": "CPU"},
        {**facts, "device": "NVIDIA"},
        {**facts, "config": {**config, "dataset": "mosaic:nodes=999999999"}},
    ]
    stored = [StoredCell(tmp_path, one) for one in (facts, strange, *others)]
    times = CellTimes.of_store(stored, "CPU", {"communities-3"})
    assert times.of(cell) == 5.0
    assert sum(map(len, times.seconds.values())) == 2


def test_the_formula_grows_with_graph_clients_rounds_and_method() -> None:
    def of(**options: object) -> float:
        return expected(RunConfig.build({"method": "fedavg", "dataset": "patchwork", "rounds": 100, **options}))

    assert of() < of(clients=50) < of(clients=50, settings={"hidden": 512})
    assert of() < of(rounds=200) == of(epochs=2)
    assert of() < of(method="fedssa")
    assert of() < of(partition="overlapping")
    assert expected(RunConfig.build({"method": "fedavg", "dataset": "nowhere.npz"})) < of()


def test_a_short_training_says_how_fast_the_machine_is() -> None:
    assert 0 < measured_unit("cpu") < 1000
