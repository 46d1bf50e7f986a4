"""Matrices between clients: similarities that methods find, missing edges, and similarities of labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.partition.source import clients_per_part
from fedquilt.partition.statistics import label_distances, statistics
from fedquilt.reports import style
from fedquilt.reports.figures import arrows, draw_group_lines, draw_matrix, plain_bar, span
from fedquilt.runs.config import RunConfig
from fedquilt.runs.folder import SeedFolder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.figures.layout import SMALL, TEXT, split_pages, wrapped
from fedquilt.studies.figures.request import FigureRequest
from fedquilt.studies.store import StoredCell
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEST = -1  # the key of the best round's similarity
_PANEL = 2.3  # inches


@dataclass(frozen=True)
class Square:
    """A matrix [M, M] between clients.

    Attributes:
        title: above it. matrix: its numbers. unit: the name of its colour bar.
        scale: matrices with the same one share their range of colours.
        groups: by client, the group it belongs to, separated by lines; empty: no groups.
    """

    title: str
    matrix: np.ndarray
    scale: str
    unit: str = "Similarity"
    groups: list[int] = field(default_factory=list)


def similarity(request: FigureRequest) -> Iterator[Figure]:
    """Draw the similarities of the first seed: a matrix for each place, round and latent factor."""
    squares = [
        square
        for entry in request.entries
        for square in _similarities(request, entry, list(request.summary.study.axes))
    ]
    if not squares and any(entry.cells for entry in request.entries):
        request.warn("No similarity of clients is drawn: none is kept of the runs that are done.")
    for page in split_pages(squares):
        yield _figure(page)


def communities(request: FigureRequest) -> Iterator[Figure]:
    """Draw side by side: missing edges between clients, similarity of their labels, and the similarity each method finds."""
    for panel in request.panels(request.by):
        found = [square for entry in panel.entries for square in _similarities(request, entry, [request.by or ""])]
        first = next(entry for entry in panel.entries if entry.cells)
        squares = [*_graph_matrices(request, first), *found]
        if squares:
            lettered = [
                Square(f"({chr(97 + place)}) {s.title}", s.matrix, s.scale, s.unit, s.groups)
                for place, s in enumerate(squares)
            ]
            yield _figure(lettered, panel.title)


def _similarities(request: FigureRequest, entry: Entry, axes: Sequence[str]) -> Iterator[Square]:
    """The similarities of an entry's first seed at the rounds of the figure."""
    if not entry.cells:
        return
    seed, cell = min(entry.cells.items())
    arrays = SeedFolder(cell.folder / f"seed-{seed}").load_arrays("similarity")
    if not arrays:
        return
    place = request.title(entry.at, [axis for axis in axes if axis in entry.at])
    for number in request.spec.rounds:
        if str(number) not in arrays:
            there = ", ".join(str(int(key) + 1) for key in arrays if int(key) != BEST)
            request.warn(f"Of {place} no similarity is kept at round {number + 1}, but at rounds {there}.")
            continue
        found = arrays[str(number)]
        when = _round(number, cell)
        factors = found if found.ndim == 3 else found[None]
        for factor, matrix in enumerate(factors, start=1):
            name = f"factor {factor}, {when}" if len(factors) > 1 else when
            title = "\n".join(part for part in (place, name) if part)
            yield Square(title, matrix, f"{place} {when}", groups=_groups(cell, len(matrix)))


def _round(number: int, cell: StoredCell) -> str:
    """A round as text, counted from 1."""
    if number != BEST:
        return f"round {number + 1}"
    best = cell.measures.get("best_round")
    return "best round" if best is None else f"best round ({best:.0f})"


def _graph_matrices(request: FigureRequest, entry: Entry) -> list[Square]:
    """Missing edges and label similarity between clients; empty where the graph is not available."""
    seed, cell = min(entry.cells.items())
    options = {**cell.facts["config"], "data": request.data, "device": "cpu", "workers": None}
    try:
        resolved = ResolvedRun(RunConfig.build(options))
        partition, _ = resolved.cut(seed)
    except FedquiltError as error:
        request.warn(f"Missing edges and labels are not drawn: {error}")
        return []
    # Held-out clients come last and are left out, as in the similarities.
    order = resolved.order(seed, partition.clients)[: resolved.context(seed).clients]
    pick = np.ix_(order, order)
    missing = statistics(resolved.graph, partition).missing_between.toarray()[pick].astype(float)
    np.fill_diagonal(missing, np.nan)  # a client misses no edges to itself
    alike = 1 - label_distances(resolved.graph, partition)[pick]
    groups = _groups(cell, len(order))
    return [
        Square("Missing edges", missing, "edges", "Edges", groups),
        Square("Similarity of labels", alike, "labels", "1 - JS distance", groups),
    ]


def _groups(cell: StoredCell, clients: int) -> list[int]:
    """By client, its group where several clients in a row share a part of the graph; else empty."""
    config = cell.facts["config"]
    shared = clients_per_part(config.get("partition", ""))
    if shared == 1 or config.get("hold_out_clients"):
        return []
    return [client // shared for client in range(clients)]


def _figure(squares: Sequence[Square], title: str = "") -> Figure:
    columns = {1: 1, 2: 2, 4: 2}.get(len(squares), 3)
    rows = math.ceil(len(squares) / columns)
    figure = style.new_figure(0.3 + _PANEL * columns, (0.2 if title else 0.0) + _PANEL * rows)
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in places[len(squares) :]:
        axes.set_axis_off()
    for place, (axes, square) in enumerate(zip(places, squares, strict=False)):
        _draw(figure, axes, square, [s.matrix for s in squares if s.scale == square.scale])
        if place + columns >= len(squares):
            axes.set_xlabel("Client", fontsize=TEXT)
        if place % columns == 0:
            axes.set_ylabel("Client", fontsize=TEXT)
    if title:
        figure.suptitle(title, fontsize=TEXT + 1, fontweight="bold")
    return figure


def _draw(figure: Figure, axes: Axes, square: Square, alike: Sequence[np.ndarray]) -> None:
    """Draw one matrix with its colour bar; `alike` are all matrices that share its range of colours."""
    matrices = [np.asarray(matrix, dtype=float) for matrix in alike]
    low, high = span(matrices)
    image = draw_matrix(axes, np.asarray(square.matrix, dtype=float), low, high)
    if square.groups:
        draw_group_lines(axes, square.groups)
    title = "\n".join(wrapped(line, _PANEL - 0.6) for line in square.title.split("\n"))
    axes.set_title(title, fontsize=TEXT, loc="center", fontweight="normal")
    axes.tick_params(labelsize=SMALL)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=16, pad=0.03, extend=arrows(matrices, low, high))
    plain_bar(bar, square.unit)
    bar.ax.tick_params(labelsize=SMALL)
    bar.ax.yaxis.label.set_fontsize(SMALL)
