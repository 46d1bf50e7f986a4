"""What a bench found: a figure for each side of each cell, peak memory, and on what machine; kept as one JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from fedquilt.common.files import write_json
from fedquilt.errors import FedquiltError

OURS, PLAIN_LOOP = "fedquilt", "plain loop"
YARDSTICK = "fedavg"  # the method that the others are set against
FORMAT = "fedquilt bench 1"


@dataclass(frozen=True)
class Row:
    """A method on a cell, by us or by a plain loop.

    Attributes:
        cell, side, method: what was timed; epochs: its local epochs a round.
        turns_ms: milliseconds a round in each turn; ms: their median; best_ms: the least.
        to_fedavg: how many of our FedAvg's rounds a round takes, the median over turns.
        to_plain_fedavg: how many rounds of the plain FedAvg loop it takes; comparable between results.
        best_to_plain_fedavg: the same of the best turns.
        speedup: how many of our rounds the plain loop of the same method takes; None where there is none.
        speedup_best: the same of the best turns.
    """

    cell: str
    side: str
    method: str
    epochs: int
    turns_ms: list[float]
    ms: float
    best_ms: float
    to_fedavg: float
    to_plain_fedavg: float
    best_to_plain_fedavg: float
    speedup: float | None = None
    speedup_best: float | None = None


@dataclass(frozen=True)
class Memory:
    """Peak memory of a method on a cell, in MB; and what was there before training began, the graph loaded."""

    cell: str
    method: str
    loaded_mb: float
    peak_mb: float


@dataclass(frozen=True)
class Result:
    """All that a bench found.

    Attributes:
        about: the machine, versions, the commit and the date; see `fedquilt.bench.machine`.
        rows: the figures; memory: peak memory where it was measured; left_out: a sentence for each thing that was not.
    """

    about: dict[str, Any]
    rows: list[Row]
    memory: list[Memory]
    left_out: list[str]

    def busyness(self) -> float:
        """How much longer the median turn took than the best one, over all sides: about 1 on an idle machine."""
        return median(row.ms / row.best_ms for row in self.rows)

    def ours(self) -> dict[tuple[str, str], Row]:
        """Our rows by cell and method."""
        return {(row.cell, row.method): row for row in self.rows if row.side == OURS}


def rows_of(cell: str, times: dict[tuple[str, str], list[float]], epochs: dict[str, int]) -> list[Row]:
    """The rows of a cell from the turns of each (side, method).

    Ratios are those of the same turn, and the median of them is what stays: both sides met the machine in the same mood.
    """

    def row(side: str, method: str) -> Row:
        mine = times[side, method]
        plain = times.get((PLAIN_LOOP, method)) if side == OURS else None
        return Row(
            cell,
            side,
            method,
            epochs[method],
            turns_ms=mine,
            ms=median(mine),
            best_ms=min(mine),
            to_fedavg=_ratio(mine, times[OURS, YARDSTICK]),
            to_plain_fedavg=_ratio(mine, times[PLAIN_LOOP, YARDSTICK]),
            best_to_plain_fedavg=min(mine) / min(times[PLAIN_LOOP, YARDSTICK]),
            speedup=_ratio(plain, mine) if plain else None,
            speedup_best=min(plain) / min(mine) if plain else None,
        )

    return [row(side, method) for side, method in times]


def _ratio(one: Sequence[float], two: Sequence[float]) -> float:
    return median(a / b for a, b in zip(one, two, strict=True))


def write_result(result: Result, path: Path) -> None:
    """Keep a result."""
    write_json(path, {"format": FORMAT} | asdict(result))


def read_result(path: Path) -> Result:
    """What `write_result` wrote."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("format") != FORMAT:
            raise KeyError("format")
        rows, memory = [Row(**row) for row in values["rows"]], [Memory(**one) for one in values["memory"]]
        return Result(values["about"], rows, memory, values["left_out"])
    except OSError as error:
        raise FedquiltError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FedquiltError(f"{path} is not a result of 'fedquilt bench'; give a file that it wrote.") from None
