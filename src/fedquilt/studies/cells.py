"""The cells of a study: each place of its table, each of its candidates and seeds, is a run; what determines it is its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.datasets.load import data_folder, load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import methods
from fedquilt.runs.config import RunConfig
from fedquilt.studies.compute_version import compute_version
from fedquilt.studies.spec import Coordinates, Level, Settings, Study

# Where and how fast a run computes, not what.
_ELSEWHERE = {"device", "data", "checkpoint_seconds", "workers", "cohort_size"}
# Values for which models are evaluated once more.
EXTRA_EVALUATIONS = ("test.neighbour",)


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Attributes:
        study: the study's name. at: its place in the table.
        candidate: the place of its settings among the candidates there. settings: these settings.
        seed: its seed.
        kind: what is done, see `Study.of`. alone: nothing else may run beside it.
        config: what the run is told.
        dear: values that are only measured where a study asks for them.
    """

    study: str
    at: Coordinates
    candidate: int
    settings: Settings
    seed: int
    kind: str
    alone: bool
    config: RunConfig
    dear: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What to call it in a line: the levels of its place, and its seed."""
        tried = f" ({written(self.settings)})" if self.settings else ""
        return ", ".join(self.at.values()) + f"{tried}, seed {self.seed}"

    @property
    def identity(self) -> str:
        """A hash of what is asked: the same run in two studies is one, whatever machine it runs on."""
        asked = {k: v for k, v in self.config.model_dump().items() if k not in _ELSEWHERE}
        return _hash({"kind": self.kind, "alone": self.alone, "dear": self.dear, **asked})

    @property
    def key(self) -> str:
        """A hash of all that determines the result: what is asked, the graph's content, and the version of what computes."""
        cut = _file_digest(self.config.partition) if self.config.partition.endswith(".npz") else ""
        return _hash([self.identity, graph_digest(self.config.dataset, self.config.data), cut, compute_version()])


@dataclass(frozen=True)
class Missing:
    """A place that cannot be run, and why; the method, where it is that which is not here."""

    at: Coordinates
    why: str
    method: str = ""


def with_others(study: Study) -> Study:
    """The study with a row for each method that is here and not in the paper, where it asks for them."""
    if not study.others or "method" not in study.axes:
        return study
    levels = study.axes["method"]
    named = {level.options.get("method") for level in levels}
    more = [Level(label=m.title, options={"method": name}) for name, m in methods().items() if name not in named]
    # What learns nothing is the floor, and stands first.
    floor = [level for level in more if methods()[level.options["method"]].single_round]
    return study.model_copy(
        update={"axes": {**study.axes, "method": floor + levels + [level for level in more if level not in floor]}}
    )


def expand(
    study: Study, seeds: int | None = None, data: str | None = None, device: str = "auto", graphs: bool = True
) -> tuple[list[Cell], list[Missing]]:
    """All cells of a study, and the places that cannot be run: their method or their graph is not there.

    Args:
        study: with the rows that `with_others` adds, where they are wanted.
        seeds: how many instead of the study's.
        data: the folder with graphs. device: where to compute.
        graphs: whether a place whose graph cannot be had is missing; else its cells are listed all the same.
    """
    cells: list[Cell] = []
    missing: list[Missing] = []
    for at in study.places():
        options = study.options_at(at)
        method = options.get("method")
        if method is not None and method not in methods():
            missing.append(Missing(at, f"the method {method} is not in fedquilt yet", method))
            continue
        why = study.missing_at(at) or (absent_graph(options, data) if graphs else None)
        if why:
            missing.append(Missing(at, why))
            continue
        cells += _cells_at(study, at, options | {"data": data, "device": device}, seeds or study.seeds)
    # Seed by seed, so that a study that is stopped early has a whole table of fewer seeds.
    return sorted(cells, key=lambda cell: cell.seed), missing


def _cells_at(study: Study, at: Coordinates, options: dict[str, Any], seeds: int) -> Iterator[Cell]:
    for number, candidate in enumerate(study.candidates_at(at)):
        settings = options.get("settings", {}) | candidate
        for seed in range(seeds):
            config = RunConfig.build({**options, "settings": settings, "seeds": [seed]})
            dear = tuple(value for value in study.values if value in EXTRA_EVALUATIONS)
            yield Cell(study.name, at, number, candidate, seed, study.of, study.alone, config, dear)


def absent_graph(options: dict[str, Any], data: str | None) -> str | None:
    """Why the graph of a run cannot be had; None where it can."""
    dataset = options.get("dataset", "patchwork")
    if isinstance(_digest_or_error(dataset, str(data_folder(data))), FedquiltError):
        return f"the graph {dataset} cannot be had here (see 'fedquilt datasets')"
    return None


def graph_digest(dataset: str, data: str | None) -> str:
    """A hash of a graph's content and of the usual way to use it; an error where the graph cannot be had."""
    found = _digest_or_error(dataset, str(data_folder(data)))
    if isinstance(found, FedquiltError):
        raise found
    return found


@cache
def _digest_or_error(dataset: str, data: str) -> str | FedquiltError:
    """A graph is read once, and one that cannot be had is asked for once."""
    try:
        graph, protocol = load_graph(dataset, Path(data))
    except FedquiltError as error:
        return error
    digest = hashlib.blake2b(repr((protocol, graph.classes)).encode(), digest_size=16)
    for array in _arrays(graph):
        flat = np.ascontiguousarray(array)
        digest.update(f"{flat.dtype}{flat.shape}".encode())
        digest.update(flat.data)
    return digest.hexdigest()


def _arrays(graph: Graph) -> Iterator[np.ndarray]:
    """All that a training reads of a graph."""
    yield from (graph.edges, graph.y)
    yield from (graph.x,) if isinstance(graph.x, np.ndarray) else (graph.x.data, graph.x.indices, graph.x.indptr)
    yield from (graph.masks or {}).values()
    if graph.copies is not None:
        yield graph.copies


@cache
def _file_digest(path: str) -> str:
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest() if Path(path).is_file() else ""


def written(settings: Settings) -> str:
    """Settings as one would type them: `lr=0.005 hidden=64`."""
    return " ".join(f"{name}={json.dumps(value)}".replace('"', "") for name, value in settings.items())


def _hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
