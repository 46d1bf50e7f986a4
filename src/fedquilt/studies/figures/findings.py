"""What methods found beside their models (`Method.findings`): filters and class means, levels side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedquilt.reports import findings
from fedquilt.runs.folder import SeedFolder
from fedquilt.studies.figures.page import Panel, Wanted, pages
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BESIDE = 3


def filters(wanted: Wanted) -> Iterator[Figure]:
    """The filters of the first seed's clients: a figure for each place, levels of `by` side by side."""
    yield from _figures(wanted, findings.has_filters, findings.filters_figure)


def class_means(wanted: Wanted) -> Iterator[Figure]:
    """The class means of the first seed's clients in a plane: a figure for each place, levels of `by` side by side."""
    drawn = False
    for figure in _figures(wanted, findings.has_class_means, findings.class_means_figure):
        drawn = True
        yield figure
    if drawn and not findings.can_tsne():
        wanted.aside("Class means are drawn as principal components; for t-SNE: pip install 'fedquilt[figures]'.")


def _figures(
    wanted: Wanted, has: Callable[[findings.Findings], bool], figure: Callable[[findings.Runs, str], Figure]
) -> Iterator[Figure]:
    panels = wanted.panels(wanted.by)
    if panels and not any(has(found) for panel in panels for _, found in _runs(wanted, panel)):
        wanted.aside(f"No {wanted.asked.kind} are drawn: none are kept of the runs that are done.")
    for panel in panels:
        runs = [(label, found) for label, found in _runs(wanted, panel) if has(found)]
        # Class means of another width do not fit into the same plane.
        kinds = list(dict.fromkeys(_shape(found) for _, found in runs))
        for kind in kinds:
            alike = [run for run in runs if _shape(run[1]) == kind]
            for beside in pages(alike, _BESIDE):
                title = panel.title
                if len(beside) == 1:  # a run alone has no heading of its own
                    title = ", ".join(part for part in (panel.title, beside[0][0]) if part)
                yield figure(beside, title)


def _runs(wanted: Wanted, panel: Panel) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """What each level of `by` found with its first seed; in the order of `where`, which is the order to be seen."""
    order = wanted.asked.where.get(wanted.by or "", wanted.levels(panel.entries))
    for entry in sorted(panel.entries, key=lambda entry: order.index(wanted.level(entry))):
        found = _findings(entry)
        if found:
            yield wanted.named(wanted.level(entry)), found


def _findings(entry: Entry) -> dict[str, np.ndarray] | None:
    if not entry.kept:
        return None
    seed, kept = min(entry.kept.items())
    return SeedFolder(kept.folder / f"seed-{seed}").load_arrays("findings")


def _shape(found: dict[str, np.ndarray]) -> tuple[int, ...]:
    return found["class_means"].shape[2:] if "class_means" in found else ()
