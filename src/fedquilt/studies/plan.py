"""The plan of a study: the part that a user asks for, expanded into cells once and passed on."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedquilt.studies.cells import Cell, Missing, expand, with_others
from fedquilt.studies.digests import why_no_graph
from fedquilt.studies.spec import Study, find_study

Only = Mapping[str, Sequence[str]]
"""By axis, the names of the levels that a user asks for."""


@dataclass(frozen=True)
class StudyPlan:
    """A study, or a part of it, and all its cells.

    Attributes:
        name: the study as the user named it. only: the part of it. seeds: how many; None: the study's number.
        data: the folder with graphs.
        study: the study, reduced to that part.
        cells: its cells, seed by seed. missing: the places that have none.
    """

    name: str
    only: Only
    seeds: int | None
    data: str | None
    study: Study
    cells: Sequence[Cell]
    missing: Sequence[Missing]

    @property
    def command(self) -> str:
        """The command that runs it."""
        parts = [f"fedquilt study run {self.name}"]
        if self.only:
            wanted = ",".join(f"{axis}={','.join(levels)}" for axis, levels in self.only.items())
            parts.append(f"--only {shlex.quote(wanted)}")
        if self.seeds is not None:
            parts.append(f"--seeds {self.seeds}")
        return " ".join(parts)

    def available(self) -> tuple[list[Cell], list[Missing]]:
        """The cells whose graph is available, and all places that cannot be run, in the order of the table."""
        missing = {tuple(one.at.values()): one for one in (*self.missing, *self.without_graph(self.cells))}
        places = [tuple(at.values()) for at in self.study.places()]
        cells = [cell for cell in self.cells if cell.place not in missing]
        return cells, [missing[place] for place in places if place in missing]

    def without_graph(self, cells: Iterable[Cell]) -> list[Missing]:
        """The places of some cells whose graph is not available."""
        reasons = [
            (cell.at, why_no_graph(cell.config.dataset, self.data, cell.config.clients_from))
            for cell in {cell.place: cell for cell in cells}.values()
        ]
        return [Missing(at, why) for at, why in reasons if why is not None]


def plan_study(
    name: str, only: Only | None = None, seeds: int | None = None, data: str | None = None, device: str = "auto"
) -> StudyPlan:
    """Find a study by its name or file, reduce it to the levels in `only`, and expand it into cells."""
    study = with_others(find_study(name)).only(only or {})
    return StudyPlan(name, only or {}, seeds, data, study, *expand(study, seeds, data, device))
