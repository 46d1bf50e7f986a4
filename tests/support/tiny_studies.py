"""Small studies: written as files, their cells stored without training, their workers in this process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from fedquilt.datasets.dataset import Choice
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.studies.cells import Cell, expand
from fedquilt.studies.progress import StudyProgress
from fedquilt.studies.published import Published
from fedquilt.studies.run_cell import run_cell
from fedquilt.studies.spec import Study, find_study
from fedquilt.studies.store import CellStore, StoredCell
from fedquilt.studies.summary import Entry, Summary
from fedquilt.studies.workers import DIED, WorkerProcess

TINY: dict[str, Any] = {
    "title": "Tiny, Table 1: three methods",
    "claim": "Nobody claims anything.",
    "seeds": 2,
    "options": {"dataset": "communities-3", "rounds": 3, "epochs": 1, "settings": {"hidden": 8}},
    "axes": {
        "method": [
            {"label": "Local", "method": "local"},
            {"label": "FedAvg", "method": "fedavg"},
            {"label": "FED-PUB", "method": "fedpub"},
        ],
        "clients": [2, 3],
    },
    "rows": ["method"],
    "columns": ["clients"],
}
PUBLISHED = """method,clients,value,mean,std,note
Local,2,test,60.0,1.0,
FED-PUB,2,test,90.5,,a misprint
FED-PUB,average,test,70,,
"""
VERSIONS = {"fedquilt": "0.0", "torch": "0.0", "python": "3"}


def write_study(folder: Path, name: str = "tiny", published: str = "", **changes: Any) -> str:
    """A study's file in `folder`, with `published` beside it; what find_study takes."""
    values = {key: value for key, value in (TINY | changes).items() if value is not None}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    if published:
        path.with_suffix(".csv").write_text(published, encoding="utf-8")
    return str(path)


def study_of(folder: Path, name: str = "tiny", **changes: Any) -> Study:
    return find_study(write_study(folder, name, **changes))


def cells_of(study: Study, seeds: int | None = None) -> list[Cell]:
    return expand(study, seeds, device="cpu")[0]


def store_cell(store: CellStore, cell: Cell, finished: float = 1.0, **measures: float | None) -> None:
    """Mark a cell as done, as if these had been measured."""
    facts = {"measures": measures, "finished": finished, "device": "CPU", "versions": VERSIONS}
    store.finish(cell, facts, keep_models=True)


def scored(study: Study, values: Any, published: Mapping[tuple[int, int], float] | None = None) -> Summary:
    """A summary of a study with one row axis and one column axis from values [rows, columns, seeds]; NaN: not there."""
    (row_axis,), (column_axis,) = study.rows, study.columns
    value, entries = next(iter(study.values)), []
    for r, row in enumerate(study.axes[row_axis]):
        for c, column in enumerate(study.axes[column_axis]):
            at = {axis: {row_axis: row.label, column_axis: column.label}[axis] for axis in study.axes}
            found = {seed: float(v) for seed, v in enumerate(np.atleast_1d(values[r][c])) if not np.isnan(v)}
            printed = (published or {}).get((r, c))
            entries.append(
                Entry(
                    at=at,
                    value=value,
                    by_seed=found,
                    published=None if printed is None else Published(at, value, printed, float("nan")),
                    cells={seed: StoredCell(Path(), {"measures": {}}) for seed in found},
                    planned=len(np.atleast_1d(values[r][c])),
                    better=study.better.get(value, "higher"),
                )
            )
    return Summary(study, entries, [], {}, [], {}, {})


def grid_study(folder: Path, rows: int, columns: int, **changes: Any) -> Study:
    """A study with rows A, B, ... and so many numbers of clients; the first row is Local."""
    names = ["local", "fedavg", "fedprox", "fedper", "fedpub", "quilt"]
    axes = {
        "method": [{"label": "ABCDEF"[r], "method": names[r]} for r in range(rows)],
        "clients": list(range(2, 2 + columns)),
    }
    return study_of(folder, "grid", axes=axes, **changes)


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph is downloaded, wherever the tests run."""

    def refuse(choice: Choice, folder: Path) -> Graph:
        raise FedquiltError(f"The graph {choice.name} is not in {folder} and cannot be downloaded.")

    monkeypatch.setattr("fedquilt.datasets.load.download", refuse)


class Inline(WorkerProcess):
    """A worker that is no process: it runs each cell here as soon as it gets it."""

    def __init__(self, job: int, into: Path, keep_models: bool, threads: int) -> None:
        self.job, self.cell, self.since = job, None, 0.0
        self.channel, self._child = multiprocessing.Pipe()
        nothing = lambda *_: None  # noqa: E731
        ends = {"join": nothing, "terminate": nothing, "kill": nothing, "is_alive": lambda: True}
        self.process = SimpleNamespace(exitcode=-9, **ends)  # type: ignore[assignment]
        self._store, self._keep_models = CellStore(into), keep_models

    def start_cell(self, cell: Cell) -> None:
        super().start_cell(cell)
        self._messages = list(self.messages(self._child.recv()))
        self._child.send("there are messages")

    def receive(self) -> tuple[Any, ...]:
        message = self._messages.pop(0)
        if not self._messages:
            self.channel.recv()
        return (DIED, -9) if message[0] == DIED else message

    def messages(self, cell: Cell) -> Sequence[tuple[Any, ...]]:
        """All messages of the worker about a cell."""
        rounds: list[tuple[Any, ...]] = []
        outcome = run_cell(
            cell, self._store, self._keep_models, lambda done, total: rounds.append(("round", done, total))
        )
        return [*rounds, (outcome,)]


def scripted(messages: Callable[[Cell, CellStore], Sequence[tuple[Any, ...]]]) -> type[Inline]:
    """Workers with the messages that a function returns."""

    class Scripted(Inline):
        def messages(self, cell: Cell) -> Sequence[tuple[Any, ...]]:
            return messages(cell, self._store)

    return Scripted


class Seen(StudyProgress):
    """A progress display that collects all calls."""

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
