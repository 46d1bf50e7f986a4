"""Several tables with the same features: one encoding for all, such as for hospitals of which each lacks some category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.encoding import Column, Encoding
from fedquilt.graphs.graph import Graph


def joint_encoding(graphs: Sequence[Graph]) -> Encoding:
    """One encoding for several tables: the columns of the first one, and what any of them needs of each.

    A category of any table is a category, in the order of names where tables differ. A column has the features "other" and
    "missing" where it has them in any table; one without a value in a table is missing there. The number in a gap is the mean
    over all nodes. A column that is a number in one table and a category in another, or is in some tables only, is an error.
    """
    tables = [(graph.encoding, graph.nodes) for graph in graphs if graph.encoding is not None]
    order: dict[str, list[tuple[Column, int]]] = {}
    for encoding, nodes in tables:
        for column in encoding.columns:
            order.setdefault(column.name, []).append((column, nodes))
    known = [
        (graph.name, {*(column.name for column in graph.encoding.columns), *graph.encoding.dropped})
        for graph in graphs
        if graph.encoding is not None
    ]
    columns = []
    for name, found in order.items():
        for table, names in known:
            if name not in names:
                raise FedquiltError(
                    f"{table} has no column '{name}', which another table has; add it, or name it under drop in each "
                    "graph.yaml."
                )
        columns.append(_joined(name, found, gap=len(found) < len(tables)))
    first = tables[0][0]
    dropped = tuple(name for name in dict.fromkeys(n for one, _ in tables for n in one.dropped) if name not in order)
    return replace(first, columns=tuple(columns), dropped=dropped)


def _joined(name: str, found: Sequence[tuple[Column, int]], gap: bool) -> Column:
    columns = [column for column, _ in found]
    kinds = {column.kind for column in columns}
    if "category" in kinds and len(kinds) > 1:
        raise FedquiltError(
            f"The column '{name}' has categories in one table and numbers or yes and no in another; name it under categories "
            "or numeric in each graph.yaml."
        )
    weights = [nodes for _, nodes in found]
    orders = {column.categories for column in columns}
    return Column(
        name,
        columns[0].kind if len(kinds) == 1 else "number",  # yes and no as words, and as 1 and 0
        float(np.average([column.fill for column in columns], weights=weights)),
        gap or any(column.indicator for column in columns),
        next(iter(orders)) if len(orders) == 1 else tuple(sorted(set().union(*orders))),
        any(column.other for column in columns),
    )


def recoded(graph: Graph, encoding: Encoding) -> Graph:
    """A graph that was read from a table, with the features of another encoding of the same columns.

    What the graph's own encoding put under "other" stays there: its categories are not known any more.
    """
    own = graph.encoding
    if own is None:
        raise FedquiltError(f"{graph.name} does not say how its columns became features, so they cannot be made anew.")
    starts = np.cumsum([0, *own.widths])
    place = {column.name: (column, int(start)) for column, start in zip(own.columns, starts[:-1], strict=True)}
    x = np.zeros((graph.nodes, sum(encoding.widths)), dtype=np.float32)
    start = 0
    for column in encoding.columns:
        part = x[:, start : (start := start + len(column.feature_names))]
        if column.name in place:
            before, first = place[column.name]
            _copy(_dense(graph.x, first, len(before.feature_names)), before, column, part)
        else:
            if column.kind != "category":
                part[:, 0] = column.fill
            if column.indicator:
                part[:, -1] = 1
    return replace(graph, x=x, feature_names=encoding.feature_names, encoding=encoding)


def _copy(values: np.ndarray, before: Column, column: Column, x: np.ndarray) -> None:
    """Copy the features of one column, [N, width before], to where they are in another encoding, [N, width]."""
    place = {name: number for number, name in enumerate(column.feature_names)}
    other = place.get(f"{column.name}=other") if column.other else None
    for number, name in enumerate(before.feature_names):
        to = place.get(name, other)
        if to is not None:
            x[:, to] += values[:, number]


def _dense(x: Features, first: int, width: int) -> np.ndarray:
    part = x[:, first : first + width]
    return part if isinstance(part, np.ndarray) else part.toarray()
