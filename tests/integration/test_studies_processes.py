"""Studies in real worker processes: failures, kills, and two processes that run the same study."""

from __future__ import annotations

import csv
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedquilt
from fedquilt.cli import main
from fedquilt.studies import workers
from fedquilt.studies.gather import gather
from fedquilt.studies.plan import plan_study
from fedquilt.studies.runner import run_cells, run_studies
from fedquilt.studies.spec import find_study
from fedquilt.studies.store import CellStore
from support.tiny_studies import Inline, Seen, cells_of, study_of, write_study

REAL = {
    "method": [
        {"label": "Local", "method": "local"},
        {"label": "FED-PUB", "method": "fedpub", "candidates": [{"lr": 0.01}, {"lr": 0.02}]},
        {"label": "Wild", "method": "fedavg", "settings": {"lr": 1e30}},
        {"label": "Refused", "method": "fedavg", "settings": {"colour": 1}},
    ],
    "clients": [2, 3],
}


def without_seconds(path: Path) -> list[dict[str, str]]:
    """The rows of a report without the seconds of a round, which differ from run to run."""
    with path.open(newline="") as file:
        return [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A study with cells that diverge and cells that are refused, run by two workers."""
    folder = tmp_path_factory.mktemp("real")
    options = {"dataset": "communities-3", "rounds": 12, "epochs": 1, "settings": {"hidden": 8}}
    name = write_study(folder, axes=REAL, options=options)
    study = find_study(name)
    store, seen = CellStore(folder / "studies"), Seen()
    run_studies([(study, cells_of(study))], store, jobs=2, progress=seen)
    return SimpleNamespace(folder=folder, name=name, study=study, store=store, seen=seen)


def test_cells_that_fail_are_reported_and_the_rest_is_done(real: SimpleNamespace) -> None:
    assert (real.seen.done, real.seen.failed, real.seen.total) == (4 + 6, 4, 14)
    summary = gather(plan_study(real.name), real.store.into)
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
    kept = real.store.get(cell)
    assert kept is not None
    assert kept.measures["test"] == pytest.approx(run.result["test_mean"], abs=1e-4)
    assert kept.measures["val"] == pytest.approx(run.result["val_mean"], abs=1e-4)
    assert not list(kept.folder.rglob("*.safetensors"))


@pytest.mark.e2e
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
    store, seen = CellStore(tmp_path / "studies"), Deadly()
    run_cells(cells, store, progress=seen)
    assert [(cell.at["method"], outcome) for cell, outcome in seen.ended] == [("fedpub", "failed"), ("local", "done")]
    assert store.failures() == {cells[0].identity: "its process ended with status -9; it may have run out of memory"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers, "WorkerProcess", Inline)
        run_cells(cells, store)
        run_cells(cells, CellStore(tmp_path / "undisturbed"))
    assert store.failures() == {}
    both = [place.by_identity()[cells[0].identity].measures for place in (store, CellStore(tmp_path / "undisturbed"))]
    for measures in both:
        measures.pop("seconds")
    assert both[0] == both[1]


DRIVER = """
import json, sys
from pathlib import Path
from fedquilt.studies.cells import expand
from fedquilt.studies.store import CellStore
from fedquilt.studies.runner import run_studies
from fedquilt.studies.spec import find_study
from fedquilt.studies.progress import StudyProgress

class Counted(StudyProgress):
    trained = {}
    def round(self, job, done, rounds):
        super().round(job, done, rounds)
        key = self.running[job][0].key
        self.trained[key] = self.trained.get(key, 0) + 1

if __name__ == "__main__":
    study, progress = find_study(sys.argv[1]), Counted()
    run_studies([(study, expand(study, device="cpu")[0])], CellStore(Path(sys.argv[2])), 1, progress=progress)
    print(json.dumps({"done": progress.done, "failed": progress.failed, "total": progress.total, "trained": progress.trained}))
"""


def environment() -> dict[str, str]:
    """For a process of its own: the package that is being tested, and one thread."""
    root = str(Path(fedquilt.__file__).resolve().parents[1])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@pytest.mark.e2e
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
    assert all(CellStore(tmp_path / "studies").get(cell) for cell in cells)


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


@pytest.mark.e2e
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
    mine, whole = into / "tiny", real.folder / "studies" / "tiny"
    assert without_seconds(mine / "report.csv") == without_seconds(whole / "report.csv")
    for file in ("report.md", "report.tex"):
        assert (mine / file).read_bytes() == (whole / file).read_bytes(), file
    assert not list(into.glob("cells/*/seed-*/checkpoints"))
