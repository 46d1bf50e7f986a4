"""Share the cells of a study among machines that see nothing of each other: each has a part of them, by their keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fedquilt.errors import FedquiltError
from fedquilt.studies.cells import Cell
from fedquilt.studies.spec import Study

_MOST = 10_000


@dataclass(frozen=True)
class Share:
    """One of `parts` parts, the first is 1."""

    part: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Parse `2/4`, the second of four parts."""
        found = re.fullmatch(r"\s*(\d{1,6})\s*/\s*(\d{1,6})\s*", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]) <= _MOST:
            raise FedquiltError(f"A share is written like 2/4, the second of four parts, not '{text}'.")
        return cls(int(found[1]), int(found[2]))

    def keys(self, study: Study, cells: Sequence[Cell]) -> frozenset[str]:
        """The keys of the cells in this part; those of all parts together are all cells.

        A part is a key modulo the number of parts. The cells of a place go together, by the key of the first: the machine that
        compares the candidates of a place is also the one that runs the chosen one on the other seeds.
        """
        places: dict[tuple[str, ...], list[str]] = {}
        for cell in cells:
            places.setdefault(tuple(study.chosen_at(cell.at).values()), []).append(cell.key)
        return frozenset(key for keys in places.values() if self._has(keys[0]) for key in keys)

    def _has(self, key: str) -> bool:
        return int(key, 16) % self.parts == self.part - 1
