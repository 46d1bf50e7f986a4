"""The published numbers of a study, read from a CSV file with a line for each, and a check of printed averages."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from fedquilt.errors import FedquiltError
from fedquilt.studies.catalogue_files import published_path
from fedquilt.studies.spec import Coordinates, Study

AVERAGE = "average"  # in place of a label: the average over that axis, as the paper prints it
_ROUNDING = 0.0051  # of the printed average; the rounding of each averaged number comes on top


@dataclass(frozen=True)
class Published:
    """A number that the paper prints.

    Attributes:
        at: its place; `average` in place of a label for an average over that axis.
        value: its name among the study's values.
        mean, std: as printed; NaN where none is printed.
        note: a remark, such as that it is a misprint.
    """

    at: Coordinates
    value: str
    mean: float
    std: float
    note: str = ""

    @property
    def is_average(self) -> bool:
        """Whether it is an average over an axis and not a number at one place."""
        return AVERAGE in self.at.values()


def read_published(study: Study, source: str | None = None) -> list[Published]:
    """Read the published numbers of a study and check each against its axes; empty where there is no file.

    The CSV has a column for each axis with the level's label, then value, mean, std and optionally note. `source` is the
    study's name as the user typed it, where that is a file.
    """
    path = published_path(source or study.name)
    if not path.is_file():
        return []
    try:
        lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (ValueError, csv.Error) as error:  # not UTF-8, or a cell that is longer than any number
        raise FedquiltError(
            f"The published numbers in {path} are not a CSV file in UTF-8; write them again."
        ) from error
    out: list[Published] = []
    for number, line in enumerate(lines, start=2):
        where = f"Line {number} of the published numbers of {study.name}"
        absent = [column for column in [*study.axes, "value", "mean", "std"] if line.get(column) is None]
        if absent:
            raise FedquiltError(f"{where} has no '{absent[0]}'.")
        at = {axis: line[axis] for axis in study.axes}
        for axis, label in at.items():
            if label != AVERAGE and label not in {level.label for level in study.axes[axis]}:
                raise FedquiltError(f"{where}: the axis {axis} has no level '{label}'.")
        if line["value"] not in study.values:
            raise FedquiltError(f"{where}: '{line['value']}' is not among the study's values.")
        try:
            mean, std = (float(line[name]) if line[name] else math.nan for name in ("mean", "std"))
        except ValueError:
            raise FedquiltError(f"{where}: mean and std must be numbers or empty.") from None
        out.append(Published(at, line["value"], mean, std, line.get("note") or ""))
    places = [(tuple(p.at.values()), p.value) for p in out]
    if len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise FedquiltError(f"The published numbers of {study.name} have {' / '.join(twice[0])} twice.")
    return out


def within(study: Study, published: Sequence[Published]) -> list[Published]:
    """The published numbers inside a part of a study; an average only where that part has all levels that it averages."""
    labels = {axis: {level.label for level in levels} for axis, levels in study.axes.items()}
    printed: dict[str, set[str]] = {axis: set() for axis in labels}
    for p in published:
        for axis, label in p.at.items():
            printed[axis].add(label)
    whole = {axis: printed[axis] - {AVERAGE} <= known for axis, known in labels.items()}
    return [
        p
        for p in published
        if all(whole[axis] if label == AVERAGE else label in labels[axis] for axis, label in p.at.items())
    ]


def wrong_averages(study: Study, published: Sequence[Published]) -> list[str]:
    """A sentence for each printed average that is not the average of the printed numbers, up to rounding.

    An average with a note is left out.
    """
    numbers = {(tuple(p.at.values()), p.value): p.mean for p in published if not p.is_average}
    wrong = []
    for p in published:
        if not p.is_average or p.note:
            continue
        levels = [[level.label for level in study.axes[a]] if at == AVERAGE else [at] for a, at in p.at.items()]
        found = [numbers[key, p.value] for key in product(*levels) if (key, p.value) in numbers]
        found = [mean for mean in found if not math.isnan(mean)]
        if not found:
            wrong.append(f"{' / '.join(p.at.values())} is an average of nothing")
            continue
        average = sum(found) / len(found)
        if abs(average - p.mean) > 2 * _ROUNDING:
            wrong.append(f"{' / '.join(p.at.values())}: printed {p.mean}, the cells give {average:.3f}")
    return wrong
