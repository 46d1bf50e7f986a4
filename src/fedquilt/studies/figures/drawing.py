"""Which figures a study gets, and where they go."""

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
from fedquilt.studies.figures.page import Wanted
from fedquilt.studies.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS: dict[str, Callable[[Wanted], Iterator[Figure]]] = {
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
    aside: Callable[[str], None] | None = None,
) -> list[Path]:
    """Write all figures of a study of which anything is done, as `overview.<format>` and `<kind>-<n>.<format>`.

    Args:
        summary: the study and what is kept of it.
        into: the folder, made where it is not there. formats: how each figure is written.
        data: the folder with graphs, for figures that need more than what is kept.
        aside: gets a sentence about each figure that is not what was asked for.
    """
    paths = []
    for name, figure in study_figures(summary, data, aside):
        with styled():
            figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once, and alike in all formats
        for kind in formats:
            path = Path(into) / f"{name}.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            save_figure(figure, path)
            paths.append(path)
    return paths


def study_figures(
    summary: Summary, data: str | None = None, aside: Callable[[str], None] | None = None
) -> Iterator[tuple[str, Figure]]:
    """All figures of a study and what to call them: the overview first, then those that the study asks for, in its order."""
    with styled():
        for page, figure in enumerate(overview(summary), start=1):
            yield (OVERVIEW if page == 1 else f"{OVERVIEW}-{page}"), figure
    counts: dict[str, int] = {}
    for asked in summary.study.figures:
        wanted = Wanted(summary, asked, data, aside or (lambda sentence: None))
        with styled():
            for figure in _KINDS[asked.kind](wanted):
                counts[asked.kind] = counts.get(asked.kind, 0) + 1
                yield f"{asked.kind}-{counts[asked.kind]}", figure
