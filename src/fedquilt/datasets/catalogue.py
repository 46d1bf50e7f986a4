"""The catalogue: datasets by name.

Each module in `fedquilt.datasets.entries` registers the datasets it describes. Nothing else lists them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import numpy as np

from fedquilt.common.registry import Registry
from fedquilt.datasets.dataset import Choice, Dataset, Parameter
from fedquilt.errors import unknown
from fedquilt.graphs.copies import CopyKind
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol

DEFAULT = "patchwork"  # the dataset of a run that names none; see `RunConfig`
CATALOGUE: Registry[Dataset] = Registry("dataset", "fedquilt.datasets.entries")
Labels = Callable[..., np.ndarray]


def register(dataset: Dataset) -> None:
    """Add a dataset to the catalogue."""
    CATALOGUE.add(dataset.name, dataset)


def register_synthetic(
    name: str,
    description: str,
    *,
    size: tuple[int, int, int, int],
    protocol: Protocol = Protocol(),  # noqa: B008 (frozen)
    natural_clients: Labels | None = None,
    node_groups: Labels | None = None,
) -> Callable[[Callable[..., Graph]], Callable[..., Graph]]:
    """Register a function that generates a graph as a dataset.

    The function's arguments are whole numbers with defaults. A name may set them: `mosaic:nodes=1000`.

    Args:
        name: what a user types.
        description: one line.
        size: nodes, edges, features and classes of the graph with default arguments.
        protocol: the defaults of a run on it.
        natural_clients: a function of the same arguments that returns the client of each node, [N].
        node_groups: a function of the same arguments that returns the group of similar clients of each node, [N].
    """

    def decorate(generate: Callable[..., Graph]) -> Callable[..., Graph]:
        arguments = inspect.signature(generate).parameters.values()
        register(
            Dataset(
                name,
                description,
                *size,
                protocol,
                generate=generate,
                parameters={argument.name: Parameter(str(argument.default)) for argument in arguments},
                natural_clients=natural_clients and _with_numbers(natural_clients),
                node_groups=node_groups and _with_numbers(node_groups),
            )
        )
        return generate

    return decorate


def datasets() -> list[Dataset]:
    """All datasets: the default, the others that need no file, then the rest."""
    return sorted(CATALOGUE.all().values(), key=lambda dataset: (dataset.raw is not None, dataset.name != DEFAULT))


def in_catalogue(name: str) -> bool:
    """Whether a name, with or without parameters, is a dataset's."""
    return _base(name) in CATALOGUE


def choose(name: str) -> Choice:
    """Return the dataset and parameters for a name such as `cora` or `syn-cora:h=0.30,r=1`."""
    base, _, parameters = name.partition(":")
    if not in_catalogue(name):
        raise unknown("dataset", base, CATALOGUE.all())
    return CATALOGUE.find(_base(name)).choose(parameters)


def known_copies(name: str) -> CopyKind | None:
    """What equal nodes of a dataset have in common, where it is known to have such nodes; None for any other graph."""
    return choose(name).copies if in_catalogue(name) else None


def natural_clients(name: str) -> np.ndarray | None:
    """Return the client of each node of a dataset that defines clients, [N]; None for any other graph.

    In a disjoint union of several graphs, each graph is one client.
    """
    if not in_catalogue(name):
        return None
    choice = choose(name)
    if choice.parts:
        return np.repeat(np.arange(len(choice.parts)), choice.dataset.nodes)
    labels = choice.dataset.natural_clients
    return None if labels is None else labels(choice.parameters)


def node_groups(name: str) -> np.ndarray | None:
    """Return the group of similar clients of each node, [N]; None for a dataset that defines no groups."""
    if not in_catalogue(name):
        return None
    choice = choose(name)
    labels = choice.dataset.node_groups
    return None if labels is None else labels(choice.parameters)


def _base(name: str) -> str:
    return name.partition(":")[0].lower()


def _with_numbers(labels: Labels) -> Callable[[Mapping[str, str]], np.ndarray]:
    return lambda parameters: labels(**{key: int(value) for key, value in parameters.items()})
