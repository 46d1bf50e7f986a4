"""What was read from tables, in words: how the files are written, what became of each column, labels and edges."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fedquilt.graphs.label_numbers import numbers_in_words
from fedquilt.graphs.tables.read import Tables

_MOST_CLASSES = 10  # in a sentence


def column_rows(tables: Tables) -> list[tuple[str, str, str]]:
    """(column, what it is, what it became), in the order in which to show them."""
    graph = tables.graph
    said = {
        "id": f"{graph.nodes:,} distinct names of nodes",
        "label": _labels(tables),
        "split": _split(tables),
        "client": _clients(tables),
    }
    return [(note.name, note.kind, note.text or said.get(note.kind, "")) for note in tables.notes]


def sentences(tables: Tables) -> list[str]:
    """What else is to be said, a sentence each: how files are written, rows and edges that were left out."""
    graph, edges = tables.graph, tables.edges
    found = [f"{name}: {how}." for name, how in tables.found.items()]
    if tables.empty:
        found.append(f"{_some(tables.empty, 'empty row')} left out.")
    kept = f"{_some(graph.edges.shape[1], 'undirected edge')} of {_some(edges.pairs.shape[1], 'row')}"
    gone = []
    if edges.repeated:
        gone.append(f"{_some(edges.repeated, 'row')} named a pair again")
    if edges.loops:
        gone.append(f"{_some(edges.loops, 'row')} joined a node to itself")
    found.append(kept + (f": {' and '.join(gone)}." if gone else "."))
    if edges.ignored:
        found.append(f"Not read of the edges: {', '.join(edges.ignored)}.")
    return found


def _labels(tables: Tables) -> str:
    graph = tables.graph
    without = int((graph.y < 0).sum())
    unlabelled = f"; {without:,} unlabelled" if without else ""
    if graph.numbers is not None:
        return numbers_in_words(graph.numbers) + unlabelled
    counts = np.bincount(graph.y[graph.y >= 0], minlength=graph.classes)
    names = graph.class_names or tuple(map(str, range(graph.classes)))
    shown = ", ".join(f"{name} {count:,}" for name, count in list(zip(names, counts, strict=True))[:_MOST_CLASSES])
    more = ", ..." if graph.classes > _MOST_CLASSES else ""
    return f"{_some(graph.classes, 'class', 'classes')}: {shown}{more}{unlabelled}"


def _split(tables: Tables) -> str:
    masks = tables.graph.masks or {}
    return ", ".join(f"{int(mask.sum()):,} {part}" for part, mask in masks.items())


def _clients(tables: Tables) -> str:
    counts = Counter(() if tables.clients is None else tables.clients.tolist())
    shown = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())[:_MOST_CLASSES])
    return f"{_some(len(counts), 'client')}: {shown}" + (", ..." if len(counts) > _MOST_CLASSES else "")


def _some(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
