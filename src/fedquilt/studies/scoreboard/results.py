"""The results of all studies, from finished cells and from reports; of a place that both have, what has more seeds counts."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedquilt.errors import FedquiltError
from fedquilt.studies.catalogue_files import study_names
from fedquilt.studies.cells import with_others
from fedquilt.studies.formats import STALE
from fedquilt.studies.gather import summarise
from fedquilt.studies.plan import plan_study
from fedquilt.studies.published import read_published
from fedquilt.studies.selection import compared_cells
from fedquilt.studies.spec import Study, find_study
from fedquilt.studies.store import CellStore, StoredCell
from fedquilt.studies.summary import COSTS, Entry, Summary, mean_costs

_LARGEST = 2**26  # bytes of a report.csv
Place = tuple[str, ...]


@dataclass(frozen=True)
class StudyResult:
    """What came of one study.

    Attributes:
        summary: its entries.
        costs: by place, the mean over seeds of each of `COSTS` that is known, of cells on the device of most of them; where
            there are none, of others without their time, which cannot be compared with these.
        cells: the finished cells behind it; empty where it was read from a report.
        stale: how many of its runs another version of the computation than the installed one finished.
    """

    summary: Summary
    costs: dict[Place, dict[str, float]]
    cells: list[StoredCell] = field(default_factory=list)
    stale: int = 0

    @property
    def study(self) -> Study:
        """The study."""
        return self.summary.study

    @property
    def numbers(self) -> int:
        """How many numbers there are, over all seeds."""
        return sum(len(entry.by_seed) for entry in self.summary.entries)


def read_results(folders: Sequence[Path]) -> tuple[dict[str, StudyResult], list[str]]:
    """By name of the study, the results of all studies that have some, and sentences about what was passed over.

    Args:
        folders: each with `cells/`, or with `<study>/report.csv`, or with both. A study that is there several times is joined.
    """
    warnings: list[str] = []
    stores = [(into, stored) for into in folders if (stored := CellStore(into).by_identity())]
    found: dict[str, StudyResult] = {}
    for name in study_names():
        several = [one for into, stored in stores if (one := _from_cells(name, into, stored, warnings)) is not None]
        for path in (into / name / "report.csv" for into in folders):
            if path.is_file():
                result, passed = read_report(find_study(name), path)
                several += [] if result is None else [result]
                if passed:
                    warnings.append(f"{passed} lines of {path} are at places that {name} does not have any more.")
        if several:
            found[name] = joined(several)
    if not found:
        raise FedquiltError(
            f"There are no results in {', '.join(map(str, folders))}: no finished cells (cells/) and no report of a study "
            "(fedpub-table-1/report.csv); run or merge some first ('fedquilt docs studies')."
        )
    return found, warnings


def joined(several: Sequence[StudyResult]) -> StudyResult:
    """One study's results as one: at each place that with the most seeds, of equals that of the result with more numbers.

    Costs are of the result with the most numbers only, as times on several devices cannot be compared.
    """
    most, *others = sorted(several, key=lambda one: -one.numbers)
    entries = {(tuple(e.at.values()), e.value): e for e in most.summary.entries}
    cells = {cell.folder: cell for cell in most.cells}
    for entry in (entry for other in others for entry in other.summary.entries):
        key = (tuple(entry.at.values()), entry.value)
        if key not in entries or len(entry.by_seed) > len(entries[key].by_seed):
            entries[key] = entry
            cells |= {cell.folder: cell for cell in entry.cells.values()}
    stale = most.stale + sum(cell.stale for cell in cells.values()) - sum(cell.stale for cell in most.cells)
    summary = replace(most.summary, entries=list(entries.values()))
    return StudyResult(summary, most.costs, list(cells.values()), stale)


def _from_cells(name: str, into: Path, stored: Mapping[str, StoredCell], warnings: list[str]) -> StudyResult | None:
    """The result of a study's finished cells; None where it has none. No graph is looked for.

    Places count where all candidates were compared, so that no method has fewer to choose from than another.
    """
    plan = plan_study(name)
    mine = [cell for cell in plan.cells if cell.identity in stored]
    if not mine:
        return None
    published = read_published(find_study(name), name)
    summary = summarise(plan.study, plan.cells, plan.missing, published, CellStore(into), stored)
    open_places = {
        tuple(plan.study.chosen_at(cell.at).values())
        for cell in compared_cells(plan.study, plan.cells)
        if cell.identity not in stored
    }
    whole = [e for e in summary.entries if tuple(plan.study.chosen_at(e.at).values()) not in open_places]
    begun = {tuple(e.at.values()) for e in summary.entries if e.by_seed} - {tuple(e.at.values()) for e in whole}
    if begun:
        warnings.append(f"{len(begun)} places of {name} in {into} are left out: not all of their candidates were run.")
    summary = replace(summary, entries=whole)
    first = summary.of(next(iter(plan.study.values)))
    cells = [cell for entry in first for cell in entry.cells.values()]
    if not cells:
        return None
    device, _ = Counter(cell.facts["device"] for cell in cells).most_common(1)[0]
    costs = {}
    for entry in first:
        there = {seed: cell for seed, cell in entry.cells.items() if cell.facts["device"] == device}
        found = mean_costs(there or entry.cells)
        if not there:
            found.pop("seconds", None)
        if found:
            costs[tuple(entry.at.values())] = found
    return StudyResult(summary, costs, cells, sum(cell.stale for cell in cells))


def read_report(study: Study, path: Path) -> tuple[StudyResult | None, int]:
    """The result in a report.csv, None where it has no numbers; and how many of its lines are at places that are not known.

    The published numbers are those of the catalogue.
    """
    whole = with_others(study)
    printed = {(tuple(p.at.values()), p.value): p for p in read_published(study) if not p.is_average}
    places = {tuple(at.values()): at for at in whole.places()}
    lines = _lines(path)
    entries: dict[tuple[Place, str], Entry] = {}
    costs: dict[Place, dict[str, float]] = {}
    passed = stale = 0
    for line in lines:
        place, value = tuple(line.get(axis) or "" for axis in whole.axes), line.get("value") or ""
        if place not in places or value not in whole.values:
            passed += 1
            continue
        numbers = [_number(path, text) for text in (line.get("by_seed") or "").split()]
        seeds = whole.reported_seeds(len(numbers))
        if value == next(iter(whole.values)):
            stale += int(_number(path, line.get(STALE) or "0"))
        entries[place, value] = Entry(
            at=places[place],
            value=value,
            by_seed=dict(zip(seeds, numbers, strict=False)),
            published=printed.get((place, value)),
            planned=len(numbers),
            better=whole.better.get(value, "higher"),
        )
        found = {name: _number(path, line[name]) for name in COSTS if line.get(name)}
        costs |= {place: found} if found else {}
    for (place, value), number in printed.items():
        entries.setdefault((place, value), Entry(places[place], value, published=number))
    summary = Summary(whole, list(entries.values()), [], {}, [], {}, {})
    done = any(entry.by_seed for entry in summary.entries)
    return (StudyResult(summary, costs, stale=stale) if done else None), passed


def _lines(path: Path) -> list[dict[str, str]]:
    if path.stat().st_size > _LARGEST:
        raise FedquiltError(f"{path} is too large for the report of a study; write it again.")
    try:
        return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (ValueError, csv.Error) as error:
        raise FedquiltError(
            f"{path} is not a CSV file in UTF-8; write it again with 'fedquilt study report'."
        ) from error


def _number(path: Path, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FedquiltError(f"{path} has '{text[:40]}' where a number should be; write it again.")
    return value
