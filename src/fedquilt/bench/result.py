"""The result of a bench: times of each side on each case, peak memory, and the machine. It is stored as one JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from fedquilt.common.files import write_json
from fedquilt.common.json_text import read_json
from fedquilt.errors import FedquiltError

OURS, PLAIN_LOOP = "fedquilt", "plain loop"
BASELINE = "fedavg"  # the method that the others are compared with
FORMAT = "fedquilt bench 1"


@dataclass(frozen=True)
class Row:
    """The times of one method on one case, by fedquilt or by a plain loop.

    Attributes:
        case, side, method: what was timed; epochs: its local epochs a round.
        turns_ms: milliseconds per round in each turn; ms: their median; best_ms: their minimum.
        to_fedavg: ratio of the time of a round to that of a FedAvg round by fedquilt, the median over turns.
        to_plain_fedavg: ratio to a round of the plain FedAvg loop; comparable between results.
        best_to_plain_fedavg: the same from the best turns.
        speedup: ratio of the plain loop's time to ours, for the same method; None if it has no plain loop.
        speedup_best: the same from the best turns.
    """

    case: str
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
    """Peak memory of a method on a case, in MB, and the memory with the graph loaded, before training."""

    case: str
    method: str
    loaded_mb: float
    peak_mb: float


@dataclass(frozen=True)
class Result:
    """The result of a bench.

    Attributes:
        about: the machine, versions, the commit and the date; see `fedquilt.bench.machine`.
        rows: the times; memory: peak memory, if measured; left_out: a sentence for each thing that was not measured.
    """

    about: dict[str, Any]
    rows: list[Row]
    memory: list[Memory]
    left_out: list[str]

    def busyness(self) -> float:
        """Ratio of the median turn's time to the best turn's, the median over sides: about 1 if there is no other load."""
        return median(row.ms / row.best_ms for row in self.rows)

    def ours(self) -> dict[tuple[str, str], Row]:
        """The rows of fedquilt by case and method."""
        return {(row.case, row.method): row for row in self.rows if row.side == OURS}


def rows_of(case: str, times: dict[tuple[str, str], list[float]], epochs: dict[str, int]) -> list[Row]:
    """Compute the rows of a case from the milliseconds in each turn of each (side, method).

    A ratio is the median of the ratios within each turn: within a turn the load of the machine is about the same.
    """

    def row(side: str, method: str) -> Row:
        mine = times[side, method]
        plain = times.get((PLAIN_LOOP, method)) if side == OURS else None
        return Row(
            case,
            side,
            method,
            epochs[method],
            turns_ms=mine,
            ms=median(mine),
            best_ms=min(mine),
            to_fedavg=_ratio(mine, times[OURS, BASELINE]),
            to_plain_fedavg=_ratio(mine, times[PLAIN_LOOP, BASELINE]),
            best_to_plain_fedavg=min(mine) / min(times[PLAIN_LOOP, BASELINE]),
            speedup=_ratio(plain, mine) if plain else None,
            speedup_best=min(plain) / min(mine) if plain else None,
        )

    return [row(side, method) for side, method in times]


def _ratio(one: Sequence[float], two: Sequence[float]) -> float:
    return median(a / b for a, b in zip(one, two, strict=True))


def write_result(result: Result, path: Path) -> None:
    """Write a result as JSON; a case is called "cell" there, as on the command line."""
    values = asdict(result)
    for key in ("rows", "memory"):
        values[key] = [{"cell": one.pop("case"), **one} for one in values[key]]
    write_json(path, {"format": FORMAT} | values)


def read_result(path: Path) -> Result:
    """Read what `write_result` wrote."""
    try:
        values = read_json(path)
        if values.pop("format") != FORMAT:
            raise KeyError("format")
        rows = [Row(case=row.pop("cell"), **row) for row in values["rows"]]
        memory = [Memory(case=one.pop("cell"), **one) for one in values["memory"]]
        return Result(values["about"], rows, memory, values["left_out"])
    except OSError as error:
        raise FedquiltError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FedquiltError(f"{path} is not a result of 'fedquilt bench'; give a file that it wrote.") from None
