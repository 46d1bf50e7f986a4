"""What the graphs of several owners have in common: the same features in one order, and the union of their classes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.recode import joint_encoding, recoded

_log = logging.getLogger(__name__)
_SHOWN = 5  # names in a sentence


@dataclass(frozen=True)
class Alignment:
    """How graphs fit together.

    Attributes:
        columns: for each graph the order in which its features are taken, [F]; None where they are in order.
        feature_names: F names; None where the graphs have none.
        encoding: how the columns of a table become the common features; None where that is not known.
        recodes: whether the features of each graph are made anew by `encoding`.
        classes: C, of the union.
        class_names: C names; None where the graphs have none.
        classes_of: for each graph the number in the union of each of its classes; None where that is the same.
    """

    columns: list[np.ndarray | None]
    feature_names: tuple[str, ...] | None
    encoding: Encoding | None
    recodes: bool
    classes: int
    class_names: tuple[str, ...] | None
    classes_of: list[np.ndarray | None]

    def labels(self, number: int, graph: Graph) -> np.ndarray:
        """[n] int64: the labels of a graph as classes of the union."""
        places = self.classes_of[number]
        return graph.y if places is None else np.where(graph.y < 0, -1, places[graph.y])

    def features(self, number: int, graph: Graph) -> Features:
        """[n, F] float32: the features of a graph in the common order; those that are made anew are dense."""
        if self.recodes and self.encoding is not None:
            return recoded(graph, self.encoding).x
        order = self.columns[number]
        if order is None:
            return graph.x
        x = graph.x[:, order]
        if not isinstance(x, np.ndarray):
            x.sort_indices()
        return x


def alignment_of(graphs: Sequence[Graph], names: Sequence[str] | None = None) -> Alignment:
    """How graphs fit together; refused, with the client's name, where features do not, or classes cannot be told.

    Args:
        graphs: one for each client.
        names: of the clients.
    """
    called = [f"client '{name}'" for name in names] if names else [f"client {m}" for m in range(len(graphs))]
    features = _align_features(graphs, called)
    if any(graph.numbers is not None for graph in graphs):
        _check_numeric(graphs, called)
        return Alignment(*features, 1, None, [None] * len(graphs))
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


def _check_numeric(graphs: Sequence[Graph], called: Sequence[str]) -> None:
    """Refuse clients of which one has classes with names and another numbers as labels."""
    numeric = next(name for graph, name in zip(graphs, called, strict=True) if graph.numbers is not None)
    for graph, name in zip(graphs, called, strict=True):
        if graph.class_names is not None:
            raise FedquiltError(
                f"{_title(name)} has classes as labels, and {numeric} has numbers; give all clients one or the other."
            )


def with_classes(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these classes in this order, of which its own may be a part; numbers without names are places in it."""
    names = tuple(names)
    if graph.numbers is not None:
        raise FedquiltError(f"{graph.name} has numbers as labels and no classes to name; leave classes out.")
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
) -> tuple[list[np.ndarray | None], tuple[str, ...] | None, Encoding | None, bool]:
    """The order of each graph's features, their names, how a table's columns become them, and whether they are made anew.

    The features are those of the first graph that names them. Where all graphs came from tables with the same columns, and
    these gave different features, they are those of `joint_encoding`: a category that one table lacks is zero there.
    """
    lead = next((m for m, graph in enumerate(graphs) if graph.feature_names is not None), 0)
    names, width, encoding = graphs[lead].feature_names, graphs[lead].features, graphs[lead].encoding
    different = len({frozenset(graph.feature_names or ()) for graph in graphs}) > 1
    if different and all(graph.encoding is not None for graph in graphs):
        for graph, client in zip(graphs, called, strict=True):
            _check_columns(graph, graphs[0], client, called[0])
        encoding = joint_encoding(graphs)
        return [None] * len(graphs), encoding.feature_names, encoding, True
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
        _check_names(graph.feature_names, names, "feature", client, called[lead])
        here = {name: number for number, name in enumerate(graph.feature_names)}
        columns.append(None if graph.feature_names == names else np.array([here[name] for name in names]))
    return columns, names, encoding, False


def _check_columns(graph: Graph, first: Graph, client: str, lead: str) -> None:
    """Refuse a table that has not the columns of the first one, or another kind of one; an empty column is no difference."""
    own, other = graph.encoding, first.encoding
    assert own is not None
    assert other is not None
    columns, expected = ({one.name: one.kind for one in each.columns} for each in (own, other))
    empty = {*own.dropped, *other.dropped}
    here, there = ([name for name in each if name not in empty] for each in (columns, expected))
    _check_names(here, there, "column", client, lead)
    for name, kind in columns.items():
        if name in expected and (kind == "category") != (expected[name] == "category"):
            raise FedquiltError(
                f"{_title(client)} has a {kind} in the column '{name}' and {lead} a {expected[name]}; correct its cells, or "
                "name the column under numeric, categories or drop in each graph.yaml."
            )


def _check_names(own: Sequence[str], names: Sequence[str], what: str, client: str, lead: str) -> None:
    """Refuse a client that lacks features, or has others than the one that leads."""
    here, there = set(own), set(names)
    missing, extra = [name for name in names if name not in here], [name for name in own if name not in there]
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
