"""Sources of a run's partitions: a kind that cuts the graph for each seed, or a file with one saved partition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedquilt.datasets.catalogue import natural_clients
from fedquilt.errors import FedquiltError
from fedquilt.graphs.federated import FederatedGraph
from fedquilt.graphs.graph import Graph
from fedquilt.partition.kind import KINDS, Kind
from fedquilt.partition.make import make_partition
from fedquilt.partition.partition import Partition
from fedquilt.partition.storage import check_fits, load

FILE_SUFFIX = ".npz"


class PartitionSource(Protocol):
    """Provides the partition for each seed of a run."""

    @property
    def name(self) -> str:
        """The kind's name, or the full path of the file."""

    @property
    def kind(self) -> str:
        """The name of the kind of the partitions."""

    @property
    def finds_clients(self) -> bool:
        """Whether the number of clients follows from the graph or the file, and need not be given."""

    @property
    def min_train(self) -> int | None:
        """See `Kind`."""

    def partition(self, graph: Graph, clients: int | None, seed: int, **options: Any) -> Partition:
        """Return the partition of a seed into `clients` clients; options as for `make_partition`."""


@dataclass(frozen=True)
class KindSource:
    """A partition kind, and the dataset whose natural clients it may need."""

    declared: Kind
    dataset: str

    @property
    def name(self) -> str:
        """See `PartitionSource`."""
        return self.declared.name

    @property
    def kind(self) -> str:
        """See `PartitionSource`."""
        return self.declared.name

    @property
    def finds_clients(self) -> bool:
        """See `PartitionSource`."""
        return self.declared.clients == "found"

    @property
    def min_train(self) -> int | None:
        """See `PartitionSource`."""
        return self.declared.min_train

    def partition(self, graph: Graph, clients: int | None, seed: int, **options: Any) -> Partition:
        """See `PartitionSource`."""
        if self.declared.natural:
            known = graph.owner if isinstance(graph, FederatedGraph) else natural_clients(self.dataset)
            options["labels"] = known
            if options["labels"] is None:
                raise FedquiltError(
                    f"{self.dataset} has no natural clients; choose another partition, such as disjoint, or say in a column "
                    "'client' whose each node is."
                )
        return make_partition(graph, self.name, clients, seed, **options)


@dataclass(frozen=True)
class FileSource:
    """A saved partition, the same for every seed."""

    path: Path
    saved: Partition
    finds_clients = True
    min_train = None

    @property
    def name(self) -> str:
        """See `PartitionSource`."""
        return str(self.path.resolve())

    @property
    def kind(self) -> str:
        """See `PartitionSource`."""
        return self.saved.kind

    def partition(self, graph: Graph, clients: int | None, seed: int, **options: Any) -> Partition:
        """Return the saved partition; `clients`, `seed` and options are ignored. Raise an error if it is for another graph."""
        check_fits(self.saved, graph)
        return self.saved


def find_source(partition: str, dataset: str) -> PartitionSource:
    """Return the source that a run's option `partition` names: a kind, or a file that `save` wrote."""
    if partition.endswith(FILE_SUFFIX):
        return FileSource(Path(partition), load(Path(partition)))
    return KindSource(KINDS.find(partition), dataset)


def clients_per_part(partition: str) -> int:
    """Return how many consecutive clients share a part of the graph in partitions of this kind; 1 for a file."""
    return KINDS.find(partition).clients_per_part if partition in KINDS else 1
