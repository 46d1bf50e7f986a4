"""Results kept over time, and what became slower since.

Milliseconds mean nothing from one day to the next on a shared machine, so what is compared is how many rounds of the plain
FedAvg loop a round takes, both timed in turns in the same process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedquilt.bench.result import Result, read_result, write_result
from fedquilt.errors import FedquiltError

SLOWER = 0.2  # more than this share above the earlier figure counts as slower


@dataclass(frozen=True)
class Change:
    """How many plain FedAvg rounds a round of a method took before and takes now: medians, and of the best turns."""

    cell: str
    method: str
    before: float
    now: float
    best_before: float
    best_now: float

    @property
    def share(self) -> float:
        """How much slower it is: 0.25 is a quarter slower, -0.5 twice as fast."""
        return self.now / self.before - 1

    @property
    def slower(self) -> bool:
        """Whether it became notably slower, in its best turns as well: a busy machine seldom slows all of them."""
        return min(self.share, self.best_now / self.best_before - 1) > SLOWER

    def __str__(self) -> str:
        figures = f"{self.now:.3g} plain FedAvg rounds a round, was {self.before:.3g}"
        return f"{self.method} on {self.cell}: {figures} ({100 * self.share:+.0f} %)"


def changes(now: Result, before: Result) -> list[Change]:
    """What both results measured, in the order of the newer one."""
    earlier = before.ours()
    return [
        Change(
            *key,
            before=earlier[key].to_plain_fedavg,
            now=row.to_plain_fedavg,
            best_before=earlier[key].best_to_plain_fedavg,
            best_now=row.best_to_plain_fedavg,
        )
        for key, row in now.ours().items()
        if key in earlier
    ]


def comparable(one: Result, two: Result) -> bool:
    """Whether two results are of the same device and number of threads."""
    return all(one.about[fact] == two.about[fact] for fact in ("device_name", "threads"))


def newest_before(folder: Path, now: Result, note: Callable[[str], None]) -> tuple[Path, Result] | None:
    """The newest earlier result in the folder of the same device and number of threads.

    What cannot be read as a result is passed over, and `note` is told.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            result = read_result(path)
        except FedquiltError as error:
            note(f"Passed over in {folder}: {error}")
            continue
        if comparable(result, now) and result.about["date"] <= now.about["date"]:
            found.append((path, result))
    return max(found, key=lambda pair: pair[1].about["date"], default=None)


def keep(folder: Path, result: Result) -> Path:
    """Write a result as <date>-<device>-<commit>.json; the path."""
    about = result.about
    date = about["date"].partition("+")[0].replace(":", "")
    device = re.sub(r"[^a-z0-9]+", "-", about["device_name"].lower()).strip("-")
    path = folder / f"{date}-{device}-{about['commit'] or about['fedquilt']}.json"
    write_result(result, path)
    return path
