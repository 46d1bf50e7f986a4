"""What the graphs of several owners have in common: the same features in one order, and the union of their classes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.encoding import Encoding, joint_encoding
from fedquilt.graphs.graph import Graph

_log = logging.getLogger(__name__)
_SHOWN = 5  # names in a sentence


@dataclass(frozen=True)
class Alignment:
    """How graphs fit together.

    Attributes:
        columns: for each graph, which of its features each common one is, [F], -1 for one that is zero there; None where they
            are the same.
        feature_names: F names; None where the graphs have none.
        encoding: how the columns of a table become the common features; None where that is not known.
        classes: C, of the union.
        class_names: C names; None where the graphs have none.
        classes_of: for each graph the number in the union of each of its classes; None where that is the same.
    """

    columns: list[np.ndarray | None]
    feature_names: tuple[str, ...] | None
    encoding: Encoding | None
    classes: int
    class_names: tuple[str, ...] | None
    classes_of: list[np.ndarray | None]

    def labels(self, number: int, graph: Graph) -> np.ndarray:
        """[n] int64: the labels of a graph as classes of the union."""
        numbers = self.classes_of[number]
        return graph.y if numbers is None else np.where(graph.y < 0, -1, numbers[graph.y])


def alignment_of(graphs: Sequence[Graph], names: Sequence[str] | None = None) -> Alignment:
    """How graphs fit together; refused, with the client's name, where features do not, or classes cannot be told.

    Args:
        graphs: one for each client.
        names: of the clients.
    """
    called = [f"client '{name}'" for name in names] if names else [f"client {m}" for m in range(len(graphs))]
    features = _align_features(graphs, called)
    class_names = union_of_classes(graphs, called)
    if class_names is None:
        counts = [graph.classes for graph in graphs]
        if min(counts) < max(counts):
            few = called[int(np.argmin(counts))]
            _log.info(
                "Clients number their classes without names, and not all have as many (%s %d, others up to %d): a number is "
                "taken as the same class everywhere.",
                *(few, min(counts), max(counts)),
            )
        return Alignment(*features, max(counts), None, [None] * len(graphs))
    place = {name: number for number, name in enumerate(class_names)}
    classes_of = [
        None
        if graph.class_names == class_names[: graph.classes]
        else np.array([place[name] for name in graph.class_names or ()], dtype=np.int64)
        for graph in graphs
    ]
    return Alignment(*features, len(class_names), class_names, classes_of)


def with_classes(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these classes in this order, of which its own may be a part; numbers without names are places in it."""
    names = tuple(names)
    if graph.class_names is None:
        if graph.classes > len(names):
            raise FedquiltError(
                f"{graph.name} has {graph.classes} classes, more than the {len(names)} that are named; name all of them."
            )
        return replace(graph, classes=len(names), class_names=names)
    strange = [name for name in graph.class_names if name not in names]
    if strange:
        raise FedquiltError(
            f"{graph.name} has the class '{strange[0]}', which is not among the classes that are named ({', '.join(names)}); "
            "name all of them."
        )
    place = np.array([names.index(name) for name in graph.class_names], dtype=np.int64)
    return replace(graph, y=np.where(graph.y < 0, -1, place[graph.y]), classes=len(names), class_names=names)


def union_of_classes(graphs: Sequence[Graph], called: Sequence[str]) -> tuple[str, ...] | None:
    """The names of the classes of all graphs; None where no graph names its classes.

    They are in the order of the graph that has all of them, else sorted, as a table's are.
    """
    named = [graph.class_names is not None for graph in graphs]
    if not any(named):
        return None
    if not all(named):
        raise FedquiltError(
            f"{_title(called[named.index(False)])} numbers its classes, and {called[named.index(True)]} names them; name them "
            "in both, by text in the column label or in a classes.txt."
        )
    union = set().union(*(set(graph.class_names or ()) for graph in graphs))
    whole = next((graph.class_names for graph in graphs if graph.classes == len(union)), None)
    return whole or tuple(sorted(union))


def _align_features(
    graphs: Sequence[Graph], called: Sequence[str]
) -> tuple[list[np.ndarray | None], tuple[str, ...] | None, Encoding | None]:
    """Where each graph has the common features, their names, and how a table's columns become them.

    The features are those of the first graph that names them. Where all graphs came from tables, they are those of all
    tables: a category, or an indicator of gaps, that one table lacks is zero there.
    """
    lead = next((m for m, graph in enumerate(graphs) if graph.feature_names is not None), 0)
    names, width, encoding = graphs[lead].feature_names, graphs[lead].features, graphs[lead].encoding
    encodings = [graph.encoding for graph in graphs if graph.encoding is not None]
    if len(encodings) == len(graphs):
        for one, client in zip(encodings, called, strict=True):
            _check_columns(one, encodings[0], client, called[0])
        encoding = joint_encoding(encodings)
        names = encoding.feature_names
    columns: list[np.ndarray | None] = []
    for graph, client in zip(graphs, called, strict=True):
        if names is None or graph.feature_names is None:
            if graph.features != width:
                raise FedquiltError(
                    f"{_title(client)} has {graph.features} features and {called[lead]} has {width}; give all clients the same "
                    "features, in the same order."
                )
            columns.append(None)
            continue
        if len(encodings) < len(graphs):
            _check_names(graph.feature_names, names, "feature", client, called[lead])
        here = {name: number for number, name in enumerate(graph.feature_names)}
        columns.append(None if graph.feature_names == names else np.array([here.get(name, -1) for name in names]))
    return columns, names, encoding


def placed(x: Features, order: np.ndarray | None) -> Features:
    """Features [n, F'] brought into the common order: `order` [F] says which column each is, -1 for one of zeros."""
    if order is None:
        return x
    if isinstance(x, np.ndarray):
        found = x[:, np.maximum(order, 0)]
        found[:, order < 0] = 0
        return found
    place = np.empty(x.shape[1], dtype=np.int64)
    place[order[order >= 0]] = np.flatnonzero(order >= 0)
    found = sp.csr_matrix((x.data, place[x.indices], x.indptr), shape=(x.shape[0], order.size))
    found.sort_indices()
    return found


def _check_columns(own: Encoding, first: Encoding, client: str, lead: str) -> None:
    """Refuse a table that has not the columns of the first one, or another kind of one."""
    _check_names([one.name for one in own.columns], [one.name for one in first.columns], "column", client, lead)
    kinds = {one.name: one.kind for one in first.columns}
    for one in own.columns:
        if one.kind != kinds[one.name]:
            raise FedquiltError(
                f"{_title(client)} has a {one.kind} in the column '{one.name}' and {lead} a {kinds[one.name]}; correct its "
                "cells, or name the column under numeric, categories or drop in each graph.yaml."
            )


def _check_names(own: Sequence[str], names: Sequence[str], what: str, client: str, lead: str) -> None:
    """Refuse a client that lacks features, or has others than the one that leads."""
    missing, extra = [name for name in names if name not in set(own)], [name for name in own if name not in set(names)]
    if missing or extra:
        clauses = [f"lacks {_listed(what, missing)} of {lead}"] if missing else []
        clauses += [f"has {_listed(what, extra)}, which {lead} has not"] if extra else []
        raise FedquiltError(
            f"{_title(client)} {' and '.join(clauses)}; give all clients the same {what}s: rename or drop them, or add "
            "those that are missing."
        )


def _listed(what: str, names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"the {what}{'s' if len(names) > 1 else ''} {shown}{more}"


def _title(text: str) -> str:
    return text[0].upper() + text[1:]
