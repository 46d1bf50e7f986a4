"""How long cells take, to estimate when a study ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedquilt.studies.cells import Cell


@dataclass
class CellTimes:
    """The seconds of finished cells, by method and graph: times differ most between these."""

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, cell: Cell, seconds: float) -> None:
        """Add a finished cell."""
        self.seconds.setdefault(_kind(cell), []).append(seconds)

    def left(self, cells: Sequence[Cell], jobs: int) -> float:
        """Estimated seconds for these cells, `jobs` at a time; NaN before any cell is done."""
        means = {kind: sum(some) / len(some) for kind, some in self.seconds.items()}
        return sum(means.get(_kind(cell), self.mean) for cell in cells) / jobs

    @property
    def mean(self) -> float:
        """Mean seconds of all finished cells; NaN before any is done."""
        everything = [seconds for some in self.seconds.values() for seconds in some]
        return sum(everything) / len(everything) if everything else math.nan


def _kind(cell: Cell) -> tuple[str, str]:
    return cell.config.method, cell.config.dataset
