"""The cases that a bench measures on: graphs, each with its partition. The command writes them as `--cell`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path

from fedquilt.datasets.catalogue import choose, in_catalogue
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.partition.kind import KINDS
from fedquilt.runs.clients_from import load_clients
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun

MANY_ROUNDS = 1_000_000  # rounds of a measured training, so that it does not end during the measurement


@dataclass(frozen=True)
class Case:
    """A dataset (or a pattern such as hospital-* for the graphs of given clients), a partition kind, a number of clients."""

    dataset: str
    partition: str
    clients: int

    def __str__(self) -> str:
        return f"{self.dataset}/{self.partition}/{self.clients}"


# Needs no file, so it is measured everywhere.
SYNTHETIC = Case("patchwork", "natural", 10)
DEFAULTS = (
    Case("cora", "disjoint", 10),
    Case("cora", "overlapping", 50),
    Case("minesweeper", "disjoint", 10),
    Case("squirrel", "disjoint", 5),
)


def parse_case(text: str) -> Case:
    """Parse `cora/disjoint/10`; a dataset that is a path may contain slashes."""
    pieces = text.rsplit("/", 2)
    if len(pieces) < 3 or not pieces[0] or not pieces[2].isdecimal() or int(pieces[2]) < 1:
        raise FedquiltError(f"'{text}' is not a cell; write dataset/partition/clients, such as cora/disjoint/10.")
    dataset, partition, clients = pieces
    KINDS.find(partition)
    if in_catalogue(dataset):
        choose(dataset)
    return Case(dataset, partition, int(clients))


def chosen_cases(named: Sequence[str] | None, quick: bool = False) -> list[Case]:
    """Return the named cases, else the defaults (none if `quick`). The case that needs no file is always added last."""
    defaults = () if quick else DEFAULTS
    return [*(defaults if named is None else map(parse_case, named)), SYNTHETIC]


@dataclass(frozen=True)
class LoadedCase:
    """A case with its graph, on which all methods to be measured can train."""

    case: Case
    graph: tuple[Graph, Protocol]
    device: str

    def resolve(self, method: str) -> ResolvedRun:
        """Return a run of the method with its default settings."""
        return ResolvedRun(config_of(self.case, method, self.device), self.graph)


def config_of(case: Case, method: str, device: str) -> RunConfig:
    """Return the configuration of a run that does not end while it is measured."""
    cut = {"dataset": case.dataset, "partition": case.partition, "clients": case.clients}
    if has_magic(case.dataset):
        cut = {"clients_from": [case.dataset], "partition": case.partition}
    return RunConfig.build(cut | {"method": method, "device": device, "rounds": MANY_ROUNDS})


def load_cases(
    cases: Sequence[Case], methods: Sequence[str], device: str, data: Path | None = None
) -> tuple[list[LoadedCase], list[str]]:
    """Load the graphs. Returns the cases, and a sentence for each whose graph is in the catalogue but not on this machine.

    Anything else that is wrong with a case (an unknown graph, an impossible partition, a method that cannot train on it) is
    an error.
    """
    loaded, left_out = [], []
    for case in dict.fromkeys(cases):
        try:
            graph = _load(case, data)
        except FedquiltError as error:
            if not in_catalogue(case.dataset):
                raise
            left_out.append(f"{case} is left out: {error}")
            continue
        loaded.append(LoadedCase(case, graph, device))
        _check(loaded[-1], methods)
    return loaded, left_out


def _load(case: Case, data: Path | None) -> tuple[Graph, Protocol]:
    return load_clients([case.dataset]) if has_magic(case.dataset) else load_graph(case.dataset, data)


def _check(loaded: LoadedCase, methods: Sequence[str]) -> None:
    """Refuse a case whose partition has another number of clients, or on which a method cannot train."""
    case = loaded.case
    first = loaded.resolve(methods[0])
    if first.config.clients != case.clients:
        right = Case(case.dataset, case.partition, first.config.clients or 0)
        raise FedquiltError(f"{case} is not possible, the cut gives {right.clients} clients; write {right}.")
    for method in methods[1:]:
        first.method_of(config_of(case, method, loaded.device))
