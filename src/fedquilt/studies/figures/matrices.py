"""Who resembles whom: what methods find, beside the edges and labels that clients have in common."""

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
from fedquilt.studies.figures.page import SMALL, TEXT, Wanted, pages, wrapped
from fedquilt.studies.store import StoredCell
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEST = -1  # the key under which the best round's similarity is kept
_PANEL = 2.3  # inches


@dataclass(frozen=True)
class Square:
    """A matrix between clients: what it is called, what its colours mean; those of the same scale share their colours."""

    title: str
    matrix: np.ndarray
    scale: str
    unit: str = "Similarity"
    groups: list[int] = field(default_factory=list)


def similarity(wanted: Wanted) -> Iterator[Figure]:
    """A matrix for each place, asked round and latent factor, of the first seed."""
    squares = [square for entry in wanted.entries for square in _found(wanted, entry, list(wanted.summary.study.axes))]
    if not squares and any(entry.kept for entry in wanted.entries):
        wanted.aside("No similarity of clients is drawn: none is kept of the runs that are done.")
    for page in pages(squares):
        yield _figure(page)


def communities(wanted: Wanted) -> Iterator[Figure]:
    """Beside each other: edges that are missing between clients, how alike their labels are, and what each method finds."""
    for panel in wanted.panels(wanted.by):
        found = [square for entry in panel.entries for square in _found(wanted, entry, [wanted.by or ""])]
        first = next(entry for entry in panel.entries if entry.kept)
        squares = [*_given(wanted, first), *found]
        if squares:
            lettered = [
                Square(f"({chr(97 + place)}) {s.title}", s.matrix, s.scale, s.unit, s.groups)
                for place, s in enumerate(squares)
            ]
            yield _figure(lettered, panel.title)


def _found(wanted: Wanted, entry: Entry, axes: Sequence[str]) -> Iterator[Square]:
    """The similarities that a place's first seed found at the rounds that are asked for."""
    if not entry.kept:
        return
    seed, kept = min(entry.kept.items())
    arrays = SeedFolder(kept.folder / f"seed-{seed}").load_arrays("similarity")
    if not arrays:
        return
    place = wanted.title(entry.at, [axis for axis in axes if axis in entry.at])
    for number in wanted.asked.rounds:
        if str(number) not in arrays:
            there = ", ".join(str(int(key) + 1) for key in arrays if int(key) != BEST)
            wanted.aside(f"Of {place} no similarity is kept at round {number + 1}, but at rounds {there}.")
            continue
        found = arrays[str(number)]
        when = _round(number, kept)
        factors = found if found.ndim == 3 else found[None]
        for factor, matrix in enumerate(factors, start=1):
            name = f"factor {factor}, {when}" if len(factors) > 1 else when
            title = "\n".join(part for part in (place, name) if part)
            yield Square(title, matrix, f"{place} {when}", groups=_groups(kept, len(matrix)))


def _round(number: int, kept: StoredCell) -> str:
    """Rounds as people count them."""
    if number != BEST:
        return f"round {number + 1}"
    best = kept.measures.get("best_round")
    return "best round" if best is None else f"best round ({best:.0f})"


def _given(wanted: Wanted, entry: Entry) -> list[Square]:
    """What the graph and its cut say; nothing where they cannot be had."""
    from fedquilt.runs.resolve import ResolvedRun

    seed, kept = min(entry.kept.items())
    told = {**kept.facts["config"], "data": wanted.data, "device": "cpu", "workers": None}
    try:
        experiment = ResolvedRun(RunConfig.build(told))
        partition, _ = experiment.cut(seed)
    except FedquiltError as error:
        wanted.aside(f"Missing edges and labels are not drawn: {error}")
        return []
    # Clients that are held out come last, as in the similarities.
    order = experiment.order(seed, partition.clients)[: experiment.context(seed).clients]
    pick = np.ix_(order, order)
    missing = statistics(experiment.graph, partition).missing_between.toarray()[pick].astype(float)
    np.fill_diagonal(missing, np.nan)  # within a client nothing can be missing
    alike = 1 - label_distances(experiment.graph, partition)[pick]
    groups = _groups(kept, len(order))
    return [
        Square("Missing edges", missing, "edges", "Edges", groups),
        Square("Similarity of labels", alike, "labels", "1 - JS distance", groups),
    ]


def _groups(kept: StoredCell, clients: int) -> list[int]:
    """The group of each client where the kind of partition lets several clients in a row share a part; else none."""
    config = kept.facts["config"]
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
    """One matrix with its colour bar; the diagonal does not stretch the colours."""
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
