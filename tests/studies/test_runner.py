"""Scheduling: several cells at a time, in workers that fail, die, or find that another process runs the cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedquilt.errors import MachineLimitError
from fedquilt.studies import cell_times, runner, workers
from fedquilt.studies.cell_memory import MemoryBudget
from fedquilt.studies.cells import Cell
from fedquilt.studies.runner import run_cells, run_studies
from fedquilt.studies.store import CellStore
from support.tiny_studies import Inline, Seen, cells_of, scripted, store_cell, study_of

RATES = [{"lr": 0.1}, {"lr": 0.2}]
TUNED = {"method": [{"label": "A", "method": "local", "candidates": RATES}, "fedavg"], "clients": [2, 3]}


def named(cells: Sequence[Cell]) -> list[tuple[str, str, int, int]]:
    return [(cell.at["method"], cell.at["clients"], cell.candidate, cell.seed) for cell in cells]


def does(cell: Cell, store: CellStore) -> Sequence[tuple[Any, ...]]:
    """Every cell is done; the second candidate is the better one."""
    store_cell(store, cell, val=float(cell.candidate), test=1.0)
    return [("round", 1, 2), ("round", 2, 2), ("done",)]


@pytest.fixture(autouse=True)
def _alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells are expected to take as long, so that they keep the order of the table."""
    monkeypatch.setattr(cell_times, "expected_of", lambda config: 1.0)


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path / "studies")


def test_candidates_run_on_the_first_seed_and_only_what_was_chosen_on_the_others(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WorkerProcess", scripted(does))
    study = study_of(tmp_path, axes=TUNED, seeds=3)
    seen = Seen()
    run_studies([(study, cells_of(study))], store, jobs=2, progress=seen)
    places = [("A", "2"), ("A", "3"), ("fedavg", "2"), ("fedavg", "3")]
    first = [(*at, c, 0) for at in places for c in (range(2) if at[0] == "A" else range(1))]
    later = [(*at, int(at[0] == "A"), seed) for seed in (1, 2) for at in places]
    assert named(seen.begun) == first + later
    assert seen.starts == [(6 + 8, 0), (6 + 8, 6)]
    assert (seen.done, seen.failed, seen.total, seen.running, seen.closed) == (14, 0, 14, {}, 1)
    assert seen.most == 2
    again = Seen()
    run_studies([(study, cells_of(study))], store, progress=again)
    assert again.begun == []
    assert (again.done, again.total) == (14, 14)


def test_cells_of_several_studies_wait_for_each_other_only_where_one_is_chosen(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First what all of them compare, a cell that two have in common once; then what was chosen in each."""
    monkeypatch.setattr(workers, "WorkerProcess", scripted(does))
    tuned, plain = (
        study_of(tmp_path, axes=TUNED, seeds=2),
        study_of(tmp_path, "plain", axes={**TUNED, "clients": [3, 5]}, seeds=1),
    )
    seen = Seen()
    run_studies([(tuned, cells_of(tuned)), (plain, cells_of(plain))], store, jobs=2, progress=seen)
    first, later = named(seen.begun)[:9], named(seen.begun)[9:]
    assert {cell[3] for cell in first} == {0}
    assert {cell[1] for cell in first} == {"2", "3", "5"}
    assert later == [("A", "2", 1, 1), ("A", "3", 1, 1), ("fedavg", "2", 0, 1), ("fedavg", "3", 0, 1)]
    assert (seen.done, seen.failed, seen.total) == (13, 0, 13)


def test_nothing_is_started_after_the_last_moment_and_what_runs_is_finished(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def slowly(cell: Cell, store: CellStore) -> Sequence[tuple[Any, ...]]:
        clock[0] += 10.0
        return does(cell, store)

    monkeypatch.setattr(workers, "WorkerProcess", scripted(slowly))
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    study = study_of(tmp_path, axes=TUNED, seeds=3)
    seen = Seen()
    run_studies([(study, cells_of(study))], store, progress=seen, until=25.0)
    assert len(seen.begun) == len(seen.ended) == 3
    assert {outcome for _, outcome in seen.ended} == {"done"}
    assert seen.closed == 1


def test_stage_two_counts_what_failed_as_failed_and_not_as_done(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def messages(cell: Cell, store: CellStore) -> Sequence[tuple[Any, ...]]:
        if cell.at["method"] == "fedavg" or (cell.candidate, cell.at["clients"]) == (1, "2"):
            store.fail(cell, "it rained")
            return [("failed",)]
        return does(cell, store)

    monkeypatch.setattr(workers, "WorkerProcess", scripted(messages))
    study = study_of(tmp_path, axes=TUNED, seeds=2)
    seen = Seen()
    run_studies([(study, cells_of(study))], store, progress=seen)
    # Of six first cells three fail; fedavg has no choice, so two of the four later ones are left.
    assert seen.starts == [(6 + 4, 0), (6 + 2, 3)]
    assert named(seen.begun[6:]) == [("A", "2", 0, 1), ("A", "3", 1, 1)]
    assert (seen.done, seen.failed, seen.total) == (5, 3, 8)
    assert all(done + failed <= total for done, failed, total in seen.counts)


def test_a_failure_on_the_choosing_seeds_is_not_tried_twice_in_one_go(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def messages(cell: Cell, store: CellStore) -> Sequence[tuple[Any, ...]]:
        if cell.seed == 1:
            store.fail(cell, "it rained")
            return [("failed",)]
        return does(cell, store)

    monkeypatch.setattr(workers, "WorkerProcess", scripted(messages))
    study = study_of(tmp_path, axes=TUNED, seeds=3, choose_on=2)
    seen = Seen()
    run_studies([(study, cells_of(study))], store, progress=seen)
    assert len(seen.begun) == len({cell.key for cell in seen.begun}) == 12 + 4
    assert (seen.done, seen.failed, seen.total) == (10, 6, 16)


def test_the_same_run_at_two_places_is_run_once(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WorkerProcess", scripted(does))
    axes = {"method": ["local", "fedavg"], "clients": [2, {"label": "two", "clients": 2}]}
    cells = cells_of(study_of(tmp_path, axes=axes, seeds=1))
    seen = Seen()
    run_cells(cells, store, jobs=3, progress=seen)
    assert named(seen.begun) == [("local", "two", 0, 0), ("fedavg", "two", 0, 0)]
    assert seen.total == 2
    assert all(store.get(cell) for cell in cells)


def test_a_worker_that_dies_is_replaced_and_its_cell_noted(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Inline] = []

    class Mortal(scripted(lambda c, k: [("died",)] if c.at["method"] == "FedAvg" else does(c, k))):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(workers, "WorkerProcess", Mortal)
    cells = cells_of(study_of(tmp_path, seeds=1))
    seen = Seen()
    run_cells(cells, store, progress=seen)
    assert [outcome for _, outcome in seen.ended] == ["done", "done", "failed", "failed", "done", "done"]
    assert len(made) == 3
    assert set(store.failures()) == {cell.identity for cell in cells if cell.at["method"] == "FedAvg"}
    assert "its process ended with status -9" in next(iter(store.failures().values()))


def test_a_worker_that_was_killed_while_it_had_nothing_to_do_is_replaced(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Inline] = []

    class Once(scripted(does)):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)
            self.process = SimpleNamespace(**{**vars(self.process), "is_alive": lambda: self.since == 0.0})

    monkeypatch.setattr(workers, "WorkerProcess", Once)
    cells = cells_of(study_of(tmp_path, seeds=1))
    seen = Seen()
    run_cells(cells, store, progress=seen)
    assert [outcome for _, outcome in seen.ended] == ["done"] * 6
    assert len(made) == 6


def test_after_an_error_that_nobody_foresaw_a_worker_is_replaced(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Inline] = []

    class Counted(Inline):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    def broken(cell: Cell, *_: Any) -> dict[str, float | None]:
        if cell.at["method"] == "Local":
            raise RuntimeError("CUDA error:\n an illegal memory access")
        return {"test": 1.0}

    monkeypatch.setattr("fedquilt.studies.run_cell._measures", broken)
    monkeypatch.setattr(workers, "WorkerProcess", Counted)
    cells = cells_of(study_of(tmp_path, seeds=1))
    seen = Seen()
    run_cells(cells, store, progress=seen)
    assert len(made) == 3
    assert (seen.done, seen.failed) == (4, 2)
    why = "something went wrong inside: RuntimeError: CUDA error: an illegal memory access"
    assert set(store.failures().values()) == {why}


def test_a_cell_that_another_process_holds_is_waited_for(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_RETRY", 0.05)
    asked: list[str] = []

    def messages(cell: Cell, store: CellStore) -> Sequence[tuple[Any, ...]]:
        asked.append(cell.key)
        return does(cell, store)[-1:] if asked.count(cell.key) > 2 or cell.at["method"] != "Local" else [("held",)]

    monkeypatch.setattr(workers, "WorkerProcess", scripted(messages))
    cells = cells_of(study_of(tmp_path, seeds=1))
    seen = Seen()
    run_cells(cells, store, progress=seen)
    ended = [outcome for _, outcome in seen.ended]
    assert ended[:6] == ["held", "held", "done", "done", "done", "done"]  # the rest is not kept waiting
    assert (ended.count("held"), seen.done, seen.failed) == (4, 6, 0)


def test_nothing_to_do_starts_no_worker(tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WorkerProcess", None)
    cells = cells_of(study_of(tmp_path, seeds=1))
    for cell in cells:
        store_cell(store, cell, test=1.0)
    seen = Seen()
    run_cells(cells, store, jobs=2, progress=seen)
    assert (seen.starts, seen.begun, seen.closed) == ([(6, 6)], [], 1)


def test_time_left_counts_what_waits_what_runs_and_what_comes_later(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Timed(scripted(does)):  # type: ignore[misc]
        def end_cell(self) -> tuple[Cell, float]:
            return super().end_cell()[0], 3.0

    monkeypatch.setattr(workers, "WorkerProcess", Timed)
    study = study_of(tmp_path, axes=TUNED, seeds=2)
    seen = Seen()
    run_studies([(study, cells_of(study))], store, progress=seen)
    assert seen.lefts == [3.0 * left for left in range(9, -1, -1)]  # six cells, then four


def test_a_limit_that_every_cell_would_meet_stops_the_study(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WorkerProcess", scripted(lambda cell, store: [(workers.LIMIT, "The disk is full")]))
    study, seen = study_of(tmp_path), Seen()
    with pytest.raises(MachineLimitError, match=r"^The disk is full, so the study stops here\.$"):
        run_studies([(study, cells_of(study))], store, progress=seen)
    assert len(seen.begun) == 1
    assert store.failures() == {}


def test_the_longest_of_a_seed_come_first(tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = {"local": 2.0, "fedavg": 1.0, "fedpub": 3.0}
    monkeypatch.setattr(cell_times, "expected_of", lambda config: lengths[config["method"]])
    monkeypatch.setattr(workers, "WorkerProcess", scripted(does))
    seen = Seen()
    run_cells(cells_of(study_of(tmp_path)), store, progress=seen)
    order = [(cell.seed, cell.config.method) for cell in seen.begun[::2]]
    assert order == [(seed, method) for seed in (0, 1) for method in ("fedpub", "local", "fedavg")]


def test_cells_that_do_not_fit_beside_each_other_wait_and_others_go_before(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[list[str]] = []

    def fits(self: MemoryBudget, cell: Cell, running: Sequence[Cell]) -> bool:
        large = [one.at["method"] for one in (cell, *running)].count("FED-PUB")
        return large < 2

    class Watched(scripted(does)):  # type: ignore[misc]
        def start_cell(self, cell: Cell) -> None:
            super().start_cell(cell)
            together.append([cell.at["method"], *(job[0].at["method"] for job in seen.running.values())])

    monkeypatch.setattr(MemoryBudget, "fits", fits)
    monkeypatch.setattr(workers, "WorkerProcess", Watched)
    seen = Seen()
    run_cells(cells_of(study_of(tmp_path))[::-1], store, jobs=3, progress=seen)
    assert seen.done == 12
    assert max(names.count("FED-PUB") for names in together) == 1
    assert max(map(len, together)) == 3


def test_a_cell_that_runs_out_of_memory_beside_others_is_tried_once_more_alone(
    tmp_path: Path, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[tuple[str, int]] = []

    def messages(cell: Cell, store: CellStore) -> Sequence[tuple[Any, ...]]:
        if cell.at["method"] == "Local":
            beside.append((cell.at["clients"], len(seen.running)))
            if cell.at["clients"] == "3" or beside[-1][1]:
                store.fail(cell, "Memory ran out.")
                return [("full",)]
        return does(cell, store)

    monkeypatch.setattr(workers, "WorkerProcess", scripted(messages))
    seen = Seen()
    run_cells(cells_of(study_of(tmp_path, seeds=1))[::-1], store, jobs=3, progress=seen)
    assert (seen.done, seen.failed, seen.running) == (5, 1, {})
    assert [outcome for _, outcome in seen.ended].count("queued") == 2
    assert sorted(beside)[::2] == [("2", 0), ("3", 0)]  # the second time nothing ran beside them
    assert list(store.failures().values()) == ["Memory ran out."]
