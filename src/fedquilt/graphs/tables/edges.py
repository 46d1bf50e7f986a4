"""The table of edges: pairs of ids, with a weight where there is a column of weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.graphs.edge_weights import weight_fault, weight_fits
from fedquilt.graphs.tables.cells import Cells
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.parse import read_cells
from fedquilt.graphs.tables.problems import Problems, listed, quoted
from fedquilt.graphs.tables.values import find_decimal, number

EDGE_COLUMNS = (("source", "target"), ("src", "dst"), ("from", "to"))
_COPIES = 6  # edges are sorted, compared and stacked


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a table, as they stand there.

    Attributes:
        pairs: [2, E] int64, the positions of the nodes.
        weights: [E] float64 where there is a column of weights.
        repeated: how many rows are of a pair that was there before, in either direction.
        loops: how many rows join a node to itself.
        one_way: how many pairs of nodes are there in one direction only.
        ignored: the columns that nothing reads.
    """

    pairs: np.ndarray
    weights: np.ndarray | None = None
    repeated: int = 0
    loops: int = 0
    one_way: int = 0
    ignored: tuple[str, ...] = ()


def no_edges() -> Edges:
    """The edges of a graph without any."""
    return Edges(np.zeros((2, 0), dtype=np.int64))


def read_edges(path: Path, options: TableOptions, problems: Problems, place: dict[str, int], nodes: Cells) -> Edges:
    """Read a table of edges between the `nodes`; `place` has the position of each id."""
    table = read_cells(path, options, problems)
    columns = _find_columns(table, options, problems)
    if columns is None:
        return no_edges()
    source, target, weight = columns
    check_size(path, (table.rows.size + 1) * 2 * 8 * _COPIES)
    ends = [table.column(source), table.column(target)]
    # Many edge lists have no header; a first row that names two nodes is an edge, not a heading.
    headless = table.header[source] in place and table.header[target] in place and weight is None
    if headless:
        ends = [[table.header[at], *cells] for at, cells in zip((source, target), ends, strict=True)]
    rows = [1, *table.rows.tolist()] if headless else table.rows.tolist()
    found = [np.array([place.get(name, -1) for name in names], dtype=np.int64) for names in ends]
    # An edge to a node whose row could not be read is no further problem.
    unread = frozenset(chain(*ends)) if nodes.refused is None else nodes.refused
    for row in np.flatnonzero((found[0] < 0) | (found[1] < 0)):
        for names, numbers in zip(ends, found, strict=True):
            if numbers[row] < 0 and names[row] not in unread:
                problems.add(
                    path,
                    f"an edge to {quoted(names[row])}, which is not an id in {nodes.path.name}; add the node or drop the edge",
                    rows[row],
                )
    pairs = np.stack(found)
    ignored = () if headless else tuple(n for at, n in enumerate(table.header) if at not in columns and n)
    return Edges(pairs, _weights(table, weight, options, problems), *_counts(pairs, len(place)), ignored)


def _find_columns(table: Cells, options: TableOptions, problems: Problems) -> tuple[int, int, int | None] | None:
    lower = [name.lower() for name in table.header]
    wanted = [(options.source or "source", options.target or "target")]
    if options.source is None and options.target is None:
        wanted = [*EDGE_COLUMNS]
    weight = (options.weight or "weight").lower()
    found_weight = lower.index(weight) if weight in lower else None
    if options.weight is not None and found_weight is None:
        problems.add(table.path, f"it has no column {quoted(options.weight)} (it has: {listed(table.header)})")
    for source, target in wanted:
        if source.lower() in lower and target.lower() in lower:
            return lower.index(source.lower()), lower.index(target.lower()), found_weight
    if len(table.header) == 2 and options.source is None and options.target is None:
        return 0, 1, None
    named = " and ".join(quoted(name) for name in wanted[0])
    problems.add(
        table.path, f"it has no columns {named} (it has: {listed(table.header)}); name them so, or in graph.yaml"
    )
    return None


def _weights(table: Cells, at: int | None, options: TableOptions, problems: Problems) -> np.ndarray | None:
    if at is None:
        return None
    cells = table.column(at)
    values = table.numbers(at)
    if values is None:
        decimal = options.decimal or find_decimal([dict.fromkeys(cells, 1)], 0)
        read = [number(cell, decimal) for cell in cells]
        for row, cell, value in zip(table.rows.tolist(), cells, read, strict=True):
            if value is None:
                problems.add(
                    table.path,
                    f"{quoted(cell)} in the column {quoted(table.header[at])} is not a number; correct it",
                    row,
                )
        values = np.array([1.0 if value is None else value for value in read])
    for at_row in np.flatnonzero(~weight_fits(values)):
        problems.add(table.path, weight_fault(values[at_row]), int(table.rows[at_row]))
    return values


def _counts(pairs: np.ndarray, nodes: int) -> tuple[int, int, int]:
    """How many rows are repetitions, and loops, and how many pairs go one way only."""
    right = pairs[:, (pairs >= 0).all(axis=0)]
    loops = right[0] == right[1]
    low, high = np.minimum(*right[:, ~loops]), np.maximum(*right[:, ~loops])
    directed = _distinct(right[0, ~loops] * nodes + right[1, ~loops])
    undirected = _distinct(low * nodes + high)
    return int(low.size - undirected), int(loops.sum()), 2 * undirected - directed


def _distinct(numbers: np.ndarray) -> int:
    """How many different numbers there are. Sorting is ten times as fast as np.unique, which uses hashing in newer versions."""
    return int((np.diff(np.sort(numbers)) > 0).sum()) + min(numbers.size, 1)
