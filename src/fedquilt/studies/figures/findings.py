"""Findings of methods (`Method.findings`): filters and class means, levels side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedquilt.reports import findings
from fedquilt.runs.folder import SeedFolder
from fedquilt.studies.figures.layout import split_pages
from fedquilt.studies.figures.request import FigureRequest, Panel
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE_BY_SIDE = 3


def filters(request: FigureRequest) -> Iterator[Figure]:
    """Draw the filters of the first seed's clients: a figure for each place, levels of `by` side by side."""
    yield from _figures(request, findings.has_filters, findings.filters_figure)


def class_means(request: FigureRequest) -> Iterator[Figure]:
    """Draw the class means of the first seed's clients in a plane: a figure for each place, levels of `by` side by side."""
    drawn = False
    for figure in _figures(request, findings.has_class_means, findings.class_means_figure):
        drawn = True
        yield figure
    if drawn and not findings.can_tsne():
        request.warn("Class means are drawn as principal components; for t-SNE: pip install 'fedquilt[figures]'.")


def _figures(
    request: FigureRequest, has: Callable[[findings.Findings], bool], figure: Callable[[findings.Runs, str], Figure]
) -> Iterator[Figure]:
    panels = request.panels(request.by)
    if panels and not any(has(found) for panel in panels for _, found in _runs(request, panel)):
        request.warn(f"No {request.spec.kind} are drawn: none are kept of the runs that are done.")
    for panel in panels:
        runs = [(label, found) for label, found in _runs(request, panel) if has(found)]
        # Class means of different widths cannot be drawn in the same plane.
        kinds = list(dict.fromkeys(_shape(found) for _, found in runs))
        for kind in kinds:
            alike = [run for run in runs if _shape(run[1]) == kind]
            for some in split_pages(alike, _SIDE_BY_SIDE):
                title = panel.title
                if len(some) == 1:  # a single run has no heading
                    title = ", ".join(part for part in (panel.title, some[0][0]) if part)
                yield figure(some, title)


def _runs(request: FigureRequest, panel: Panel) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """By level of `by`, the findings of its first seed; in the order of `where`, else of the study."""
    order = request.spec.where.get(request.by or "", request.levels(panel.entries))
    for entry in sorted(panel.entries, key=lambda entry: order.index(request.level(entry))):
        found = _findings(entry)
        if found:
            yield request.legend_label(request.level(entry)), found


def _findings(entry: Entry) -> dict[str, np.ndarray] | None:
    if not entry.cells:
        return None
    seed, cell = min(entry.cells.items())
    return SeedFolder(cell.folder / f"seed-{seed}").load_arrays("findings")


def _shape(found: dict[str, np.ndarray]) -> tuple[int, ...]:
    return found["class_means"].shape[2:] if "class_means" in found else ()
