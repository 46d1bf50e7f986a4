"""Cells, which are cuts of a graph to measure on: how they are written, which are usual, and a training on one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.datasets.catalogue import choose, in_catalogue
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.partition.kind import KINDS
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun

MANY_ROUNDS = 1_000_000  # a training that is measured does not come to its last round


@dataclass(frozen=True)
class Case:
    """A graph, how it is cut, and into how many clients."""

    dataset: str
    partition: str
    clients: int

    def __str__(self) -> str:
        return f"{self.dataset}/{self.partition}/{self.clients}"


# Needs no file, so it is measured everywhere.
SYNTHETIC = Case("patchwork", "natural", 10)
USUAL = (
    Case("cora", "disjoint", 10),
    Case("cora", "overlapping", 50),
    Case("minesweeper", "disjoint", 10),
    Case("squirrel", "disjoint", 5),
)


def parse_case(text: str) -> Case:
    """`cora/disjoint/10` as a cell; a dataset that is a path may have slashes of its own."""
    pieces = text.rsplit("/", 2)
    if len(pieces) < 3 or not pieces[0] or not pieces[2].isdecimal() or int(pieces[2]) < 1:
        raise FedquiltError(f"'{text}' is not a cell; write dataset/partition/clients, such as cora/disjoint/10.")
    dataset, partition, clients = pieces
    KINDS.find(partition)
    if in_catalogue(dataset):
        choose(dataset)
    return Case(dataset, partition, int(clients))


@dataclass(frozen=True)
class Ready:
    """A cell whose graph is loaded and on which all methods to be measured can train."""

    cell: Case
    given: tuple[Graph, Protocol]
    device: str

    def experiment(self, method: str) -> ResolvedRun:
        """A run of the method with its defaults, seed 0."""
        return ResolvedRun(config_of(self.cell, method, self.device), self.given)


def config_of(cell: Case, method: str, device: str) -> RunConfig:
    """A run that does not end while it is measured."""
    cut = {"dataset": cell.dataset, "partition": cell.partition, "clients": cell.clients}
    return RunConfig.build(cut | {"method": method, "device": device, "rounds": MANY_ROUNDS})


def load_cases(
    cells: Sequence[Case], methods: Sequence[str], device: str, data: Path | None = None
) -> tuple[list[Ready], list[str]]:
    """The cells that can be measured, and a sentence for each whose graph is known but cannot be had here.

    Whatever else is wrong with a cell (no such graph, an impossible cut, a method that cannot train on it) is an error.
    """
    ready, left_out = [], []
    for cell in dict.fromkeys(cells):
        try:
            given = load_graph(cell.dataset, data)
        except FedquiltError as error:
            if not in_catalogue(cell.dataset):
                raise
            left_out.append(f"{cell} is left out: {error}")
            continue
        ready.append(Ready(cell, given, device))
        _check(ready[-1], methods)
    return ready, left_out


def _check(ready: Ready, methods: Sequence[str]) -> None:
    """Refuse a cell that cannot be cut as it says, or on which a method cannot train."""
    cell = ready.cell
    first = ready.experiment(methods[0])
    if first.config.clients != cell.clients:
        right = Case(cell.dataset, cell.partition, first.config.clients or 0)
        raise FedquiltError(f"{cell} is not possible, the cut gives {right.clients} clients; write {right}.")
    for method in methods[1:]:
        first.method_of(config_of(cell, method, ready.device))
