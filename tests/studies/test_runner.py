"""Many cells, some at a time: in workers that fail, die, or find that another process was first."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedquilt
from fedquilt.cli import main
from fedquilt.studies import runner
from fedquilt.studies.cells import Cell
from fedquilt.studies.progress import StudyProgress
from fedquilt.studies.reporting import gather
from fedquilt.studies.runner import Pace, run_cells, run_study
from fedquilt.studies.spec import find_study
from fedquilt.studies.store import CellStore
from support.tiny_studies import Inline, cells_of, keep, outcomes, study_of, write_study

RATES = [{"lr": 0.1}, {"lr": 0.2}]
TUNED = {"method": [{"label": "A", "method": "local", "candidates": RATES}, "fedavg"], "clients": [2, 3]}


class Seen(StudyProgress):
    """Notes all that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[tuple[int, int]] = []
        self.begun: list[Cell] = []
        self.ended: list[tuple[Cell, str]] = []
        self.lefts: list[float] = []
        self.counts: list[tuple[int, int, int]] = []
        self.most = 0
        self.closed = 0

    def start(self, total: int, done: int, jobs: int) -> None:
        super().start(total, done, jobs)
        self.starts.append((total, done))

    def begin(self, job: int, cell: Cell) -> None:
        super().begin(job, cell)
        self.begun.append(cell)
        self.most = max(self.most, len(self.running))

    def end(self, job: int, cell: Cell, outcome: str, seconds: float, left: float) -> None:
        super().end(job, cell, outcome, seconds, left)
        self.ended.append((cell, outcome))
        self.lefts.append(left)
        self.counts.append((self.done, self.failed, self.total))

    def close(self) -> None:
        self.closed += 1


def named(cells: Sequence[Cell]) -> list[tuple[str, str, int, int]]:
    return [(cell.at["method"], cell.at["clients"], cell.candidate, cell.seed) for cell in cells]


def does(cell: Cell, keeping: CellStore) -> Sequence[tuple[Any, ...]]:
    """Every cell is done; the second candidate is the better one."""
    keep(keeping, cell, val=float(cell.candidate), test=1.0)
    return [("round", 1, 2), ("round", 2, 2), ("done",)]


@pytest.fixture
def keeping(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path / "studies")


# -- scheduling, with workers that are no processes --------------------------------------------------


def test_candidates_run_on_the_first_seed_and_only_what_was_chosen_on_the_others(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_Worker", outcomes(does))
    study = study_of(tmp_path, axes=TUNED, seeds=3)
    seen = Seen()
    run_study(study, cells_of(study), keeping, jobs=2, view=seen)
    places = [("A", "2"), ("A", "3"), ("fedavg", "2"), ("fedavg", "3")]
    first = [(*at, c, 0) for at in places for c in (range(2) if at[0] == "A" else range(1))]
    later = [(*at, int(at[0] == "A"), seed) for seed in (1, 2) for at in places]
    assert named(seen.begun) == first + later
    assert seen.starts == [(6 + 8, 0), (6 + 8, 6)]
    assert (seen.done, seen.failed, seen.total, seen.running, seen.closed) == (14, 0, 14, {}, 1)
    assert seen.most == 2
    again = Seen()
    run_study(study, cells_of(study), keeping, view=again)
    assert again.begun == []
    assert (again.done, again.total) == (14, 14)


def test_stage_two_counts_what_failed_as_failed_and_not_as_done(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def says(cell: Cell, keeping: CellStore) -> Sequence[tuple[Any, ...]]:
        if cell.at["method"] == "fedavg" or (cell.candidate, cell.at["clients"]) == (1, "2"):
            keeping.fail(cell, "it rained")
            return [("failed",)]
        return does(cell, keeping)

    monkeypatch.setattr(runner, "_Worker", outcomes(says))
    study = study_of(tmp_path, axes=TUNED, seeds=2)
    seen = Seen()
    run_study(study, cells_of(study), keeping, view=seen)
    # Of six first cells three fail; fedavg has no choice, so two of the four later ones are left.
    assert seen.starts == [(6 + 4, 0), (6 + 2, 3)]
    assert named(seen.begun[6:]) == [("A", "2", 0, 1), ("A", "3", 1, 1)]
    assert (seen.done, seen.failed, seen.total) == (5, 3, 8)
    assert all(done + failed <= total for done, failed, total in seen.counts)


def test_a_failure_on_the_choosing_seeds_is_not_tried_twice_in_one_go(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def says(cell: Cell, keeping: CellStore) -> Sequence[tuple[Any, ...]]:
        if cell.seed == 1:
            keeping.fail(cell, "it rained")
            return [("failed",)]
        return does(cell, keeping)

    monkeypatch.setattr(runner, "_Worker", outcomes(says))
    study = study_of(tmp_path, axes=TUNED, seeds=3, choose_on=2)
    seen = Seen()
    run_study(study, cells_of(study), keeping, view=seen)
    assert len(seen.begun) == len({cell.key for cell in seen.begun}) == 12 + 4
    assert (seen.done, seen.failed, seen.total) == (10, 6, 16)


def test_the_same_run_at_two_places_is_run_once(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_Worker", outcomes(does))
    axes = {"method": ["local", "fedavg"], "clients": [2, {"label": "two", "clients": 2}]}
    cells = cells_of(study_of(tmp_path, axes=axes, seeds=1))
    seen = Seen()
    run_cells(cells, keeping, jobs=3, view=seen)
    assert named(seen.begun) == [("local", "two", 0, 0), ("fedavg", "two", 0, 0)]
    assert seen.total == 2
    assert all(keeping.done(cell) for cell in cells)


def test_a_worker_that_dies_is_replaced_and_its_cell_noted(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Inline] = []

    class Mortal(outcomes(lambda c, k: [("died",)] if c.at["method"] == "FedAvg" else does(c, k))):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(runner, "_Worker", Mortal)
    cells = cells_of(study_of(tmp_path, seeds=1))
    seen = Seen()
    run_cells(cells, keeping, view=seen)
    assert [outcome for _, outcome in seen.ended] == ["done", "done", "failed", "failed", "done", "done"]
    assert len(made) == 3
    assert set(keeping.failures()) == {cell.identity for cell in cells if cell.at["method"] == "FedAvg"}
    assert "its process ended with status -9" in next(iter(keeping.failures().values()))


def test_a_worker_that_was_killed_while_it_had_nothing_to_do_is_replaced(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Inline] = []

    class Once(outcomes(does)):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)
            self.process = SimpleNamespace(**{**vars(self.process), "is_alive": lambda: self.since == 0.0})

    monkeypatch.setattr(runner, "_Worker", Once)
    cells = cells_of(study_of(tmp_path, seeds=1))
    seen = Seen()
    run_cells(cells, keeping, view=seen)
    assert [outcome for _, outcome in seen.ended] == ["done"] * 6
    assert len(made) == 6


def test_after_an_error_that_nobody_foresaw_a_worker_is_replaced(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(runner, "_Worker", Counted)
    cells = cells_of(study_of(tmp_path, seeds=1))
    seen = Seen()
    run_cells(cells, keeping, view=seen)
    assert len(made) == 3
    assert (seen.done, seen.failed) == (4, 2)
    why = "something went wrong inside: RuntimeError: CUDA error: an illegal memory access"
    assert set(keeping.failures().values()) == {why}


def test_a_cell_that_another_process_holds_is_waited_for(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_AGAIN", 0.05)
    asked: list[str] = []

    def says(cell: Cell, keeping: CellStore) -> Sequence[tuple[Any, ...]]:
        asked.append(cell.key)
        return does(cell, keeping)[-1:] if asked.count(cell.key) > 2 or cell.at["method"] != "Local" else [("held",)]

    monkeypatch.setattr(runner, "_Worker", outcomes(says))
    cells = cells_of(study_of(tmp_path, seeds=1))
    seen = Seen()
    run_cells(cells, keeping, view=seen)
    ended = [outcome for _, outcome in seen.ended]
    assert ended[:6] == ["held", "held", "done", "done", "done", "done"]  # the rest is not kept waiting
    assert (ended.count("held"), seen.done, seen.failed) == (4, 6, 0)


def test_nothing_to_do_starts_no_worker(tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_Worker", None)
    cells = cells_of(study_of(tmp_path, seeds=1))
    for cell in cells:
        keep(keeping, cell, test=1.0)
    seen = Seen()
    run_cells(cells, keeping, jobs=2, view=seen)
    assert (seen.starts, seen.begun, seen.closed) == ([(6, 6)], [], 1)


# -- time left ---------------------------------------------------------------------------------------


def test_time_left_is_not_known_before_the_first_and_then_by_method_and_graph(tmp_path: Path) -> None:
    cells = cells_of(study_of(tmp_path, seeds=1))  # Local, FedAvg, FED-PUB with 2 and 3 clients
    pace = Pace()
    assert math.isnan(pace.left(cells, 1))
    assert pace.left([], 1) == 0
    pace.add(cells[0], 2.0)
    assert pace.left(cells, 1) == pytest.approx(12.0)
    pace.add(cells[2], 10.0)
    pace.add(cells[3], 20.0)
    # Local 2 s, FedAvg 15 s, others the mean of all, 32 / 3 s.
    assert pace.left(cells, 2) == pytest.approx((2 * 2 + 2 * 15 + 2 * 32 / 3) / 2)


def test_time_left_counts_what_waits_what_runs_and_what_comes_later(
    tmp_path: Path, keeping: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Timed(outcomes(does)):  # type: ignore[misc]
        def leave(self) -> tuple[Cell, float]:
            return super().leave()[0], 3.0

    monkeypatch.setattr(runner, "_Worker", Timed)
    study = study_of(tmp_path, axes=TUNED, seeds=2)
    seen = Seen()
    run_study(study, cells_of(study), keeping, view=seen)
    assert seen.lefts == [3.0 * left for left in range(9, -1, -1)]  # six cells, then four


# -- real processes ----------------------------------------------------------------------------------

REAL = {
    "method": [
        {"label": "Local", "method": "local"},
        {"label": "FED-PUB", "method": "fedpub", "candidates": [{"lr": 0.01}, {"lr": 0.02}]},
        {"label": "Wild", "method": "fedavg", "settings": {"lr": 1e30}},
        {"label": "Refused", "method": "fedavg", "settings": {"colour": 1}},
    ],
    "clients": [2, 3],
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A study with cells that diverge and cells that are refused, run by two workers."""
    folder = tmp_path_factory.mktemp("real")
    options = {"dataset": "communities-3", "rounds": 12, "epochs": 1, "settings": {"hidden": 8}}
    name = write_study(folder, axes=REAL, options=options)
    study = find_study(name)
    keeping, seen = CellStore(folder / "studies"), Seen()
    run_study(study, cells_of(study), keeping, jobs=2, view=seen)
    return SimpleNamespace(folder=folder, name=name, study=study, keeping=keeping, seen=seen)


def test_cells_that_fail_are_reported_and_the_rest_is_done(real: SimpleNamespace) -> None:
    assert (real.seen.done, real.seen.failed, real.seen.total) == (4 + 6, 4, 14)
    summary = gather(real.name, real.keeping.into)
    assert {entry.at["method"]: len(entry.by_seed) for entry in summary.entries if entry.at["clients"] == "3"} == {
        "Local": 2,
        "FED-PUB": 2,
        "Wild": 0,
        "Refused": 0,
    }
    assert sorted(summary.failed) == [
        f"{name}, {clients}, seed 0" for name in ("Refused", "Wild") for clients in (2, 3)
    ]
    assert summary.failed["Wild, 2, seed 0"].startswith("Training diverged")
    assert "colour" in summary.failed["Refused, 2, seed 0"]
    assert multiprocessing.active_children() == []


def test_what_a_worker_finds_is_what_a_run_finds(real: SimpleNamespace) -> None:
    cell = next(cell for cell in cells_of(real.study) if cell.at == {"method": "FED-PUB", "clients": "3"})
    options = {k: v for k, v in cell.config.model_dump().items() if k not in ("method", "dataset")}
    run = fedquilt.run("fedpub", "communities-3", **options)
    kept = real.keeping.done(cell)
    assert kept is not None
    assert kept.measures["test"] == pytest.approx(run.result["test_mean"], abs=1e-4)
    assert kept.measures["val"] == pytest.approx(run.result["val_mean"], abs=1e-4)
    assert not list(kept.folder.rglob("*.safetensors"))


def test_a_killed_worker_is_replaced_and_its_cell_done_when_the_study_is_run_again(tmp_path: Path) -> None:
    class Deadly(Seen):
        """Kills the worker of the first cell in its third round."""

        def round(self, job: int, done: int, rounds: int) -> None:
            super().round(job, done, rounds)
            if len(self.begun) == 1 and done == 3:
                (worker,) = multiprocessing.active_children()
                assert worker.pid is not None
                os.kill(worker.pid, signal.SIGKILL)

    study = study_of(tmp_path, axes={"method": ["fedpub", "local"], "clients": [3]}, seeds=1)
    cells = [replace(c, config=c.config.model_copy(update={"rounds": 40})) for c in cells_of(study)]
    keeping, seen = CellStore(tmp_path / "studies"), Deadly()
    run_cells(cells, keeping, view=seen)
    assert [(cell.at["method"], outcome) for cell, outcome in seen.ended] == [("fedpub", "failed"), ("local", "done")]
    assert keeping.failures() == {cells[0].identity: "its process ended with status -9; it may have run out of memory"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "_Worker", Inline)
        run_cells(cells, keeping)
        run_cells(cells, CellStore(tmp_path / "undisturbed"))
    assert keeping.failures() == {}
    both = [place.by_identity()[cells[0].identity].measures for place in (keeping, CellStore(tmp_path / "undisturbed"))]
    for measures in both:
        measures.pop("seconds")
    assert both[0] == both[1]


DRIVER = """
import json, sys
from pathlib import Path
from fedquilt.studies.cells import expand
from fedquilt.studies.store import CellStore
from fedquilt.studies.runner import run_study
from fedquilt.studies.spec import find_study
from fedquilt.studies.progress import StudyProgress

class Counted(StudyProgress):
    trained = {}
    def round(self, job, done, rounds):
        super().round(job, done, rounds)
        key = self.running[job][0].key
        self.trained[key] = self.trained.get(key, 0) + 1

if __name__ == "__main__":
    study, view = find_study(sys.argv[1]), Counted()
    run_study(study, expand(study, device="cpu")[0], CellStore(Path(sys.argv[2])), 1, view=view)
    print(json.dumps({"done": view.done, "failed": view.failed, "total": view.total, "trained": view.trained}))
"""


def environment() -> dict[str, str]:
    """For a process of its own: the package that is being tested, and one thread."""
    root = str(Path(fedquilt.__file__).resolve().parents[1])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def test_two_processes_at_one_study_do_each_cell_once(tmp_path: Path) -> None:
    import json

    name = write_study(tmp_path, seeds=1)
    (tmp_path / "driver.py").write_text(DRIVER)
    line = [sys.executable, str(tmp_path / "driver.py"), name, str(tmp_path / "studies")]
    both = [subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    cells = cells_of(find_study(name))
    for one in told:
        assert (one["done"], one["failed"], one["total"]) == (len(cells), 0, len(cells))
    rounds = {cell.key: [one["trained"].get(cell.key, 0) for one in told] for cell in cells}
    assert {tuple(sorted(some)) for some in rounds.values()} == {(0, 3)}  # nobody trained a round of another's cell
    assert all(CellStore(tmp_path / "studies").done(cell) for cell in cells)


# -- kill -9 -----------------------------------------------------------------------------------------


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def children(pid: int) -> list[int]:
    found = [Path(f"/proc/{pid}/task/{context.name}/children") for context in Path(f"/proc/{pid}/task").iterdir()]
    return [int(child) for path in found for child in path.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see whether workers end")
def test_a_study_that_is_killed_again_and_again_ends_with_the_same_report(
    real: SimpleNamespace, tmp_path: Path
) -> None:
    """The short version of `python -m benchmarks.study_kills`."""
    into = tmp_path / "studies"
    line = f"study run tiny.yaml --jobs 2 --device cpu --quiet --into {into}".split()
    rng = random.Random(0)
    for kill in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "fedquilt.cli", *line], cwd=real.folder, env=environment(), stdout=subprocess.DEVNULL
        )
        began, seen = time.monotonic(), 0
        # The first kill comes once something is trained, the second once more is done than before.
        done = len(list(into.glob("cells/*/cell.json")))
        while seen <= (done if kill else 0):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() - began < 60
            time.sleep(0.01)
            seen = len(list(into.glob("cells/*/cell.json" if kill else "cells/*/seed-*/metrics.jsonl")))
        time.sleep(rng.random() * 0.1)
        workers = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        until = time.monotonic() + 30
        while not all(map(gone, workers)):  # nobody ended them
            assert time.monotonic() < until, "workers outlive the process that started them"
            time.sleep(0.02)
    last = subprocess.run(
        [sys.executable, "-m", "fedquilt.cli", *line],
        cwd=real.folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert last.returncode == 1, last.stderr  # the study has cells that fail
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(real.folder)
        assert main(["study", "report", "tiny.yaml", "--into", "studies"]) == 0
    for file in ("report.csv", "report.md", "report.tex"):
        assert (into / "tiny" / file).read_bytes() == (real.folder / "studies" / "tiny" / file).read_bytes(), file
    assert not list(into.glob("cells/*/seed-*/checkpoints"))
