"""Draw all figures of a study and write them to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedquilt.reports.style import save_figure, styled
from fedquilt.studies.figures.bars import bars
from fedquilt.studies.figures.curves import convergence
from fedquilt.studies.figures.findings import class_means, filters
from fedquilt.studies.figures.lines import lines
from fedquilt.studies.figures.matrices import communities, similarity
from fedquilt.studies.figures.overview import overview
from fedquilt.studies.figures.request import FigureRequest
from fedquilt.studies.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS: dict[str, Callable[[FigureRequest], Iterator[Figure]]] = {
    "convergence": convergence,
    "lines": lines,
    "bars": bars,
    "similarity": similarity,
    "communities": communities,
    "filters": filters,
    "class-means": class_means,
}
OVERVIEW = "overview"


def draw_figures(
    summary: Summary,
    into: Path,
    formats: Sequence[str] = ("png", "pdf", "svg"),
    data: str | None = None,
    warn: Callable[[str], None] | None = None,
) -> list[Path]:
    """Write the figures for which cells are done, as `overview.<format>` and `<kind>-<n>.<format>`; return their paths.

    Args:
        summary: the study and its entries.
        into: the folder, made where it does not exist. formats: each figure is written in all of them.
        data: the folder with graphs, for figures that read the graph.
        warn: called with a sentence about anything that cannot be drawn as asked.
    """
    paths = []
    for name, figure in study_figures(summary, data, warn):
        with styled():
            figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is made once, so that all formats are alike
        for kind in formats:
            path = Path(into) / f"{name}.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            save_figure(figure, path)
            paths.append(path)
    return paths


def study_figures(
    summary: Summary, data: str | None = None, warn: Callable[[str], None] | None = None
) -> Iterator[tuple[str, Figure]]:
    """All figures of a study with their names: the overview first, then those that the study asks for, in its order."""
    with styled():
        for page, figure in enumerate(overview(summary), start=1):
            yield (OVERVIEW if page == 1 else f"{OVERVIEW}-{page}"), figure
    counts: dict[str, int] = {}
    for spec in summary.study.figures:
        request = FigureRequest(summary, spec, data, warn or (lambda sentence: None))
        with styled():
            for figure in _KINDS[spec.kind](request):
                counts[spec.kind] = counts.get(spec.kind, 0) + 1
                yield f"{spec.kind}-{counts[spec.kind]}", figure
