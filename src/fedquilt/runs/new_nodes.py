"""A graph to predict for, read and brought into the form that a trained model takes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.tables import is_table
from fedquilt.methods.personal_model import Personal

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class NewNodes:
    """A graph that fits a model, its features in the model's order; `warnings` say what is allowed but worth knowing."""

    graph: Graph
    warnings: tuple[str, ...] = ()


def read_new_nodes(source: str | os.PathLike[str] | Graph | Data, personal: Personal) -> NewNodes:
    """The graph to predict for. Everything that predicts for a graph given by the user reads it here, and only here.

    Args:
        source: an npz file, a folder of tables, one table of nodes (csv or parquet: nodes without edges), a `Graph`, or PyTorch
            Geometric's `Data`; never the name of a dataset. Labels are not needed. Features are those that the model was
            trained on: in any order where they have names, else in the same.
        personal: the model.
    """
    warnings: tuple[str, ...] = ()
    if isinstance(source, str):
        source = Path(source)
    graph = load_graph(source, labelled=False, encoding=personal.encoding)[0]
    if isinstance(source, os.PathLike) and Path(source).is_file() and is_table(Path(source)) and not graph.edges.size:
        warnings = (
            f"{Path(source).name} is a table of nodes without edges: each is predicted from its own features alone; to use "
            "neighbours, give a folder with nodes.csv and edges.csv.",
        )
    check_fits(graph, personal)
    graph = in_order(graph, personal)
    task, context = personal.method.task, personal.method.context
    warnings += tuple(task.prediction_warnings(graph, context.outputs, personal.class_names))
    if strange := personal.weight_warning(graph):
        warnings += (strange,)
    return NewNodes(graph, warnings)


def check_fits(graph: Graph, personal: Personal) -> None:
    """Refuse a graph that the model cannot be used on."""
    names, features = personal.feature_names, personal.method.context.features
    if names is not None and graph.feature_names is not None:
        _check_same_features(graph.name, graph.feature_names, names)
    if graph.features != features:
        raise FedquiltError(
            f"{graph.name} has {graph.features} features and the model was trained on {features}; "
            "give a graph with the same features in the same order."
        )


def _check_same_features(graph: str, given: tuple[str, ...], right: tuple[str, ...]) -> None:
    there, asked = set(given), set(right)
    for name in right:
        if name not in there:
            raise FedquiltError(
                f"{graph} has no feature '{name}', which the model was trained on; give a graph with the same features."
            )
    for name in given:
        if name not in asked:
            raise FedquiltError(f"{graph} has a feature '{name}', which the model was not trained on; leave it out.")


def in_order(graph: Graph, personal: Personal) -> Graph:
    """A graph that fits, with its features in the order in which the model takes them, as far as they have names."""
    names = personal.feature_names
    if names is None or graph.feature_names in (None, names):
        return graph
    place = {name: number for number, name in enumerate(graph.feature_names or ())}
    x = graph.x[:, [place[name] for name in names]]
    if isinstance(x, np.ndarray):
        x = np.ascontiguousarray(x)
    else:
        x.sort_indices()  # so that sums are bit-identical to those of a file in the right order
    return replace(graph, x=x, feature_names=names)
