"""Which cells fit beside each other."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fedquilt.devices.room import Room
from fedquilt.studies import cell_memory
from fedquilt.studies.cell_memory import CONTEXT, CUDA_PROCESS, PROCESS, MemoryBudget, Need, at_most
from fedquilt.studies.cells import Cell
from fedquilt.studies.store import StoredCell
from support.tiny_studies import cells_of, study_of

GB = 10**9


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    """Local, FedAvg and FED-PUB, with 2 and 3 clients each."""
    return cells_of(study_of(tmp_path, seeds=1))


def budget(host: float, device: float = math.inf, kind: str = "cpu") -> MemoryBudget:
    return MemoryBudget(torch.device(kind), 4, Need(host, device))


def test_a_cell_starts_where_all_fit_and_always_where_nothing_runs(cells: list[Cell]) -> None:
    local, avg, pub = cells[0], cells[2], cells[4]
    found = budget(2.5 * GB)
    found.known = {cell_memory._kind(vars(c.config)): Need(n * GB) for c, n in ((local, 1), (avg, 1.4), (pub, 9))}
    assert found.fits(avg, [local])
    assert not found.fits(avg, [local, local])
    assert not found.fits(pub, [local])
    assert found.fits(pub, [])
    found.alone.add(local.key)
    assert not found.fits(avg, [local])
    assert not found.fits(local, [avg])
    assert found.fits(local, [])


def test_the_accelerator_and_the_host_both_have_to_have_room(cells: list[Cell]) -> None:
    one = cells[0]
    at = cell_memory._kind(vars(one.config))
    for host, device, fits in ((9, 9, True), (9, 3, False), (3, 9, False)):
        found = budget(host * GB, device * GB, "cuda")
        found.known[at] = Need(2 * GB, 2 * GB)
        assert found.fits(one, [one]) == fits


def test_what_finished_cells_needed_counts_with_a_margin(cells: list[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_memory, "room_of", lambda device: Room(10 * GB, 20 * GB))
    config = cells[0].config.model_dump()
    facts = [
        {"config": config, "memory": {"host": 2 * GB, "device": 5 * GB}},
        {"config": config, "memory": {"host": 3 * GB, "device": 4 * GB}},
        {"config": config, "memory": {"host": 8 * GB}},  # of a CPU
        {"config": config, "memory": "much"},
        {},
    ]
    stored = [StoredCell(Path(), one) for one in facts]
    found = MemoryBudget.here(torch.device("cuda"), 4, stored)
    assert found.free == Need(pytest.approx(9 * GB), pytest.approx(9 * GB))
    assert found.need(cells[0]) == Need(pytest.approx(1.15 * 3 * GB), pytest.approx(CONTEXT + 1.15 * 5 * GB))
    assert MemoryBudget.here(torch.device("cpu"), 4, stored).need(cells[0]) == Need(pytest.approx(1.15 * 8 * GB))


def test_what_surely_fits_is_not_tried_and_what_may_not_fit_is(
    cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cells[4]
    most = at_most(cell.config)
    assert budget(100 * GB).need(cell) == Need(PROCESS + most)
    assert budget(100 * GB, 100 * GB, "cuda").need(cell) == Need(CUDA_PROCESS, CONTEXT + most)
    tried = budget(4 * PROCESS).need(cell)
    assert PROCESS < tried.host < PROCESS + most

    def fails(cell: Cell, device: torch.device) -> int:
        raise RuntimeError("no")

    monkeypatch.setattr(cell_memory, "_trial", fails)
    assert budget(4 * PROCESS).need(cell) == Need(PROCESS + most)
