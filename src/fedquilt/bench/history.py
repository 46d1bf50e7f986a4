"""Store results over time in a folder, and find which methods became slower between two results.

Milliseconds of different days on a shared machine are not comparable. So the time of a method's round is divided by that of a
round of the plain FedAvg loop, timed in turns in the same process, and these ratios are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from fedquilt.bench.result import Result, read_result, write_result
from fedquilt.errors import FedquiltError

SLOWER = 0.2  # a ratio more than this share above the earlier one counts as slower


@dataclass(frozen=True)
class Change:
    """The ratio of a method's round to a round of the plain FedAvg loop, before and now: medians, and from the best turns."""

    case: str
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
        """Whether it is slower by more than `SLOWER`, also in the best turns, because other load seldom slows all turns."""
        return min(self.share, self.best_now / self.best_before - 1) > SLOWER

    def __str__(self) -> str:
        ratios = f"{self.now:.3g} plain FedAvg rounds a round, was {self.before:.3g}"
        return f"{self.method} on {self.case}: {ratios} ({100 * self.share:+.0f} %)"


def changes(now: Result, before: Result) -> list[Change]:
    """Return the change of each method and case that both results measured, in the order of the newer one."""
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
    """Find the newest earlier result in the folder with the same device and number of threads.

    A file that is not a result is skipped; `note` is called with a sentence that names it.
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


def store(folder: Path, result: Result) -> Path:
    """Write a result as <date>-<device>-<commit>.json in the folder, numbered where that is taken. Returns the path."""
    about = result.about
    date = about["date"].partition("+")[0].replace(":", "")
    device = re.sub(r"[^a-z0-9]+", "-", about["device_name"].lower()).strip("-")
    name = f"{date}-{device}-{about['commit'] or about['fedquilt']}"
    path = next(path for path in _numbered(folder, name) if not path.exists())
    write_result(result, path)
    return path


def _numbered(folder: Path, name: str) -> Iterator[Path]:
    """Yield <name>.json, <name>-2.json, <name>-3.json and so on."""
    yield folder / f"{name}.json"
    for number in count(2):
        yield folder / f"{name}-{number}.json"


def comparison_sentences(now: Result, before: Result, where: str) -> list[str]:
    """Return sentences about what is slower in `now` than in the earlier result `before`, which they call `where`."""
    found = changes(now, before)
    slower = [change for change in found if change.slower]
    sentences = []
    if not comparable(now, before):
        sentences.append(f"{where} is of another device or number of threads, so differences may be the machine's.")
    if not found:
        sentences.append(f"{where} has no cell and method in common with this result.")
    elif not slower:
        sentences.append(f"More than {SLOWER:.0%} slower than in {where}: none of {len(found)} measurements.")
    else:
        sentences.append(f"More than {SLOWER:.0%} slower than in {where}, {len(slower)} of {len(found)} measurements:")
        sentences += [f"  {change}" for change in slower]
    return sentences


def add_to_history(folder: Path, result: Result, note: Callable[[str], None]) -> list[str]:
    """Compare with the newest comparable result in the folder, then store this one there. Returns what to print."""
    before = newest_before(folder, result, note)
    if before is None:
        sentences = [f"{folder} has no earlier result of this device and as many threads to compare with."]
    else:
        sentences = comparison_sentences(result, before[1], str(before[0]))
    return [*sentences, f"Written to {store(folder, result)}."]
