"""The data of a run as Python gives it: a name, a path, a graph in memory, or the graphs of several clients."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from fedquilt.datasets.catalogue import DEFAULT
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.runs.clients_from import join_clients
from fedquilt.runs.config import CLIENTS, GIVEN
from fedquilt.tasks.base import TASKS

if TYPE_CHECKING:
    from torch_geometric.data import Data

OneGraph: TypeAlias = Union[str, "os.PathLike[str]", Graph, "Data"]
GivenData: TypeAlias = OneGraph | Sequence[OneGraph] | Mapping[str, OneGraph]


def _needs_labels(task: object) -> bool:
    """Whether a task needs labels; a task that is not known here, and perhaps comes with a plug-in, does."""
    tasks = TASKS.all()
    return not isinstance(task, str) or task not in tasks or tasks[task].needs_labels


def named_data(data: GivenData, options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Graph, Protocol] | None]:
    """The options of `RunConfig` that name the data, and the graph where it was given as an object.

    A list of paths is the same as `clients_from`. Other graphs of clients are joined here.
    """
    if isinstance(data, str | os.PathLike):
        # Who says `clients_from` gives no dataset.
        left_out = data == DEFAULT and options.get("clients_from") is not None
        return {"dataset": CLIENTS if left_out else os.fspath(data)}, None
    if not isinstance(data, Mapping | list | tuple):
        return {"dataset": GIVEN}, load_graph(data, labelled=_needs_labels(options.get("task")))
    if options.get("clients_from") is not None:
        raise FedquiltError("The clients are given twice, as a list and as clients_from; leave out one of them.")
    for name in ("partition", "clients", "sizes", "alpha"):
        if options.get(name) is not None:
            raise FedquiltError(f"A list of graphs is cut already, a client each; leave out {name}={options[name]}.")
    if not isinstance(data, Mapping) and data and all(isinstance(one, str | os.PathLike) for one in data):
        return {"clients_from": [os.fspath(one) for one in data], "dataset": CLIENTS}, None
    return {"dataset": GIVEN, "partition": "natural"}, (join_clients(data), Protocol())
