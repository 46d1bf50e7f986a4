"""Small studies: written as files, their cells kept without training, their workers in this process."""

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
from fedquilt.studies.published import Published
from fedquilt.studies.run_cell import carry_out
from fedquilt.studies.runner import _Worker
from fedquilt.studies.spec import Study, find_study
from fedquilt.studies.store import CellStore, StoredCell
from fedquilt.studies.summary import Entry, Summary

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


def keep(keeping: CellStore, cell: Cell, finished: float = 1.0, **measures: float | None) -> None:
    """Mark a cell as done, as if these had been read off its run."""
    facts = {"measures": measures, "finished": finished, "device": "CPU", "versions": VERSIONS}
    keeping.finish(cell, facts, keep_models=True)


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
                    kept={seed: StoredCell(Path(), {}) for seed in found},
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


class Inline(_Worker):
    """A worker that is no process: it runs its cells here, when it is given them."""

    def __init__(self, job: int, into: Path, keep_models: bool, threads: int) -> None:
        self.job, self.cell, self.since = job, None, 0.0
        self.channel, self._theirs = multiprocessing.Pipe()
        self.process = SimpleNamespace(exitcode=-9, join=lambda *_: None, terminate=lambda: None, is_alive=lambda: True)  # type: ignore[assignment]
        self._keeping, self._keep_models = CellStore(into), keep_models

    def take(self, cell: Cell) -> None:
        super().take(cell)
        self._said = list(self.says(self._theirs.recv()))
        self._theirs.send("there is something to hear")

    def hear(self) -> tuple[Any, ...]:
        message = self._said.pop(0)
        if not self._said:
            self.channel.recv()
        return (self.DIED, -9) if message[0] == self.DIED else message

    def says(self, cell: Cell) -> Sequence[tuple[Any, ...]]:
        """All that the worker says about a cell."""
        heard: list[tuple[Any, ...]] = []
        outcome = carry_out(
            cell, self._keeping, self._keep_models, lambda done, rounds: heard.append(("round", done, rounds))
        )
        return [*heard, (outcome,)]


def outcomes(says: Callable[[Cell, CellStore], Sequence[tuple[Any, ...]]]) -> type[Inline]:
    """Workers that say what the function says they say."""

    class Told(Inline):
        def says(self, cell: Cell) -> Sequence[tuple[Any, ...]]:
            return says(cell, self._keeping)

    return Told
