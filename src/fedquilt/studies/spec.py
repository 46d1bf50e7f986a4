"""What a study is: the axes of a table, what their levels set, and what is read off each run.

A study is a YAML file in `catalogue/<paper>/`, its published numbers the CSV file of the same name (docs/studies.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedquilt.errors import FedquiltError, unknown
from fedquilt.runs.config import RunConfig, read_config

# What a level or an override may set: everything a run can be told but its seeds, which are the study's.
OPTIONS = frozenset(RunConfig.model_fields) - {
    "seeds",
    "device",
    "data",
    "checkpoint_seconds",
    "workers",
    "cohort_size",
}
Settings = dict[str, Any]
Coordinates = dict[str, str]
"""By axis, the label of a level: where in the table something stands."""


class Level(BaseModel):
    """One level of an axis, such as one method or one number of clients.

    Attributes:
        label: what the paper calls it, and the published numbers.
        options: what it sets of a run.
        candidates: settings among which validation chooses, on top of `options`; empty: nothing to choose.
        missing: why it cannot be run, where that is known; a method that is not there is found without it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    options: dict[str, Any] = {}
    candidates: list[Settings] = []
    missing: str | None = None

    @classmethod
    def read(cls, axis: str, value: Any) -> Any:
        """A level as it is written: a mapping of label, options and settings, or just the value of the option `axis`."""
        if not isinstance(value, Mapping):
            if axis not in OPTIONS:
                raise ValueError(f"{axis} is no option of a run, so write its level {value!r} as a mapping")
            return {"label": str(value), "options": {axis: value}}
        rest = dict(value)
        level = {key: rest.pop(key) for key in ("label", "candidates", "missing") if key in rest}
        _check_options(rest)
        return {"label": str(rest.get(axis, "")), **level, "options": rest}

    def called(self, axis: str, name: str) -> bool:
        """Whether a user who writes `axis=name` means this level."""
        names = {self.label, str(self.options.get(axis, self.label))}
        return _plain(name) in {_plain(known) for known in names}


class Override(BaseModel):
    """What some places of the table set beside what their levels say.

    Attributes:
        where: by axis, the labels of the levels it is about; axes that are not named: all.
        options: what it sets of a run. candidates: see `Level`; they replace the level's.
        missing: why these places cannot be run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: dict[str, list[str]]
    options: dict[str, Any] = {}
    candidates: list[Settings] | None = None
    missing: str | None = None

    @classmethod
    def read(cls, value: Any) -> Any:
        """An override as it is written: `where`, and beside it options, settings, candidates or missing."""
        rest = dict(value)
        place = {key: rest.pop(key) for key in ("candidates", "missing") if key in rest}
        where = _where(rest)
        rest.pop("where", None)
        _check_options(rest)
        return {"where": where, **place, "options": rest}

    def matches(self, at: Coordinates) -> bool:
        """Whether it is about this place."""
        return all(at.get(axis) in labels for axis, labels in self.where.items())


class Figure(BaseModel):
    """A figure of a study.

    Attributes:
        kind: convergence (metric by round), lines (a value along the axis `x`), bars (a value for each level of `x`),
            similarity (between clients, at `rounds`), communities (missing edges and label similarity between clients),
            filters or class-means (what FedSSA found).
        x, by: axes: along which, and a line or colour for each level of which. The other axes get a panel each.
        value: what is drawn. rounds: at which similarities are shown, -1 the best one.
        where: as in an override, which places it is about; empty: all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["convergence", "lines", "bars", "similarity", "communities", "filters", "class-means"]
    x: str | None = None
    by: str = "method"
    value: str = "test"
    rounds: list[int] = [-1]
    where: dict[str, list[str]] = {}
    log: bool = False


class Study(BaseModel):
    """A study as its file has it.

    Attributes:
        name: such as fedpub-table-2.
        title: one line. claim: what the paper says comes out of it, in one sentence.
        notes: what one should know about the protocol, a sentence each; where it differs from the paper's.
        of: what a cell is: a training (run), one on the whole graph evaluated at the clients (oracle), or a cut (partition).
        seeds: how many, 0 .. seeds - 1.
        alone: cells are timed, so one runs at a time.
        tuned: a method without candidates of its own chooses among those in catalogue/candidates.yaml: as many for each method.
        choose_on: on how many seeds candidates are compared; with the other seeds only what was chosen is run.
        others: every method that the paper does not have gets a row as well.
        options: what all runs are told.
        axes: by name, its levels; together all places of the table.
        rows, columns: which axes make the table's rows and its columns; the rest of the axes get a table each.
        skip: places that the paper does not have: by axis, labels.
        overrides: what single places set.
        values: by name (see `measures`), what is read off a run, with its heading.
        better: of each value whether higher or lower is better; no ranks where it is neither. Left out: higher.
        figures: what is drawn.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    claim: str
    notes: list[str] = []
    of: Literal["run", "oracle", "partition"] = "run"
    seeds: Annotated[int, Field(ge=1)] = 3
    alone: bool = False
    tuned: bool = False
    choose_on: Annotated[int, Field(ge=1)] = 1
    others: bool = False
    options: dict[str, Any] = {}
    axes: dict[str, Annotated[list[Level], Field(min_length=1)]]
    rows: list[str]
    columns: list[str]
    skip: list[dict[str, list[str]]] = []
    overrides: list[Override] = []
    values: dict[str, str] = {"test": "Test metric (%)"}
    better: dict[str, Literal["higher", "lower", "neither"]] = {}
    figures: list[Figure] = []

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, raw: Any) -> Any:
        raw = dict(raw)
        _check_options(_names(raw, "options"))
        if "axes" in raw:
            raw["axes"] = {
                axis: [Level.read(axis, level) for level in _listed(f"the levels of {axis}", levels)]
                for axis, levels in _names(raw, "axes").items()
            }
        raw["overrides"] = [Override.read(one) for one in _mappings(raw, "overrides")]
        raw["skip"] = [{axis: _labels(labels) for axis, labels in one.items()} for one in _mappings(raw, "skip")]
        raw["figures"] = [{**one, "where": _where(one)} for one in _mappings(raw, "figures")]
        return raw

    @model_validator(mode="after")
    def _is_whole(self) -> Study:
        for axis, levels in self.axes.items():
            labels = [level.label for level in levels]
            if len(set(labels)) < len(labels) or "" in labels or "average" in labels:
                raise ValueError(f"the levels of {axis} need labels of their own (and none may be 'average')")
        for axis in [*self.rows, *self.columns]:
            self._check_axis(axis)
        if len(set(self.rows + self.columns)) < len(self.rows + self.columns) or not self.rows or not self.columns:
            raise ValueError("rows and columns need an axis each, and no axis twice")
        for where in [*self.skip, *(o.where for o in self.overrides), *(f.where for f in self.figures)]:
            for axis, labels in where.items():
                self._check_axis(axis)
                known = {level.label for level in self.axes[axis]}
                wrong = [label for label in labels if label not in known]
                if wrong:
                    raise ValueError(f"the axis {axis} has no level {wrong[0]!r}; it has {', '.join(sorted(known))}")
        for figure in self.figures:
            if figure.kind in ("lines", "bars"):
                for drawn in (figure.by, figure.x):
                    self._check_axis(drawn or "x")
            if figure.value not in self.values:
                raise ValueError(f"a figure draws {figure.value}, which is not among the values")
        for value in self.better:
            if value not in self.values:
                raise ValueError(f"better speaks of {value}, which is not among the values")
        return self

    def _check_axis(self, axis: str) -> None:
        if axis not in self.axes:
            raise ValueError(f"there is no axis {axis}; there are {', '.join(self.axes)}")

    @property
    def paper(self) -> str:
        """Whose table it is: the first word of its name."""
        return self.name.partition("-")[0]

    @property
    def tables(self) -> list[str]:
        """The axes that are neither rows nor columns: a table for each of their places."""
        return [axis for axis in self.axes if axis not in self.rows and axis not in self.columns]

    def level(self, axis: str, label: str) -> Level:
        """The level of an axis that is called so."""
        return next(level for level in self.axes[axis] if level.label == label)

    def places(self) -> Iterator[Coordinates]:
        """All places of the table, in the order of the axes."""
        labels = [[level.label for level in levels] for levels in self.axes.values()]
        for combination in itertools.product(*labels):
            at = dict(zip(self.axes, combination, strict=True))
            if not any(all(at[axis] in skipped for axis, skipped in one.items()) for one in self.skip):
                yield at

    def options_at(self, at: Coordinates) -> dict[str, Any]:
        """What a run at this place is told: the study's options, then its levels', then the overrides'."""
        parts = [self.options, *(self.level(axis, label).options for axis, label in at.items())]
        parts += [override.options for override in self.overrides if override.matches(at)]
        merged: dict[str, Any] = {}
        for part in parts:
            settings = merged.get("settings", {}) | part.get("settings", {})
            merged = merged | part | ({"settings": settings} if settings else {})
        return merged

    def candidates_at(self, at: Coordinates) -> list[Settings]:
        """The settings among which validation chooses at this place; one empty choice where there is nothing to choose."""
        found = [c for axis, label in at.items() if (c := self.level(axis, label).candidates)]
        found += [o.candidates for o in self.overrides if o.candidates is not None and o.matches(at)]
        if not found and self.tuned:
            found = [common_candidates().get(self.options_at(at).get("method", ""), [])]
        return found[-1] if found and found[-1] else [{}]

    def missing_at(self, at: Coordinates) -> str | None:
        """Why a place cannot be run, where its levels or an override say so."""
        reasons = [self.level(axis, label).missing for axis, label in at.items()]
        reasons += [override.missing for override in self.overrides if override.matches(at)]
        return next((reason for reason in reasons if reason), None)

    def only(self, wanted: Mapping[str, Sequence[str]]) -> Study:
        """The same study with fewer levels: by axis, the names of those that stay."""
        axes = dict(self.axes)
        for axis, names in wanted.items():
            if axis not in axes:
                raise unknown(f"axis of {self.name}", axis, axes)
            for name in names:
                if not any(level.called(axis, name) for level in axes[axis]):
                    raise unknown(f"{axis} of {self.name}", name, [level.label for level in axes[axis]])
            axes[axis] = [level for level in axes[axis] if any(level.called(axis, name) for name in names)]
        return self.model_copy(update={"axes": axes})


def read_study(path: Path, name: str) -> Study:
    """A study from its file, or one clear sentence about what is wrong with it."""
    values = read_config(path)
    try:
        return Study.model_validate({**values, "name": name})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise FedquiltError(f"The study {name} is not sound{f' at {where}' if where else ''}: {message}.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise FedquiltError(f"The study {name} is not sound: {error}.") from None


def study_names() -> list[str]:
    """The studies that come with fedquilt, papers in their order, tables before figures."""
    return sorted(_files(), key=_order)


def find_study(name: str) -> Study:
    """A study by its name, or from a YAML file of the user's own."""
    if name.endswith((".yaml", ".yml")):
        return read_study(Path(name), Path(name).stem)
    files = _files()
    if name not in files:
        raise unknown("study", name, files)
    with resources.as_file(files[name]) as path:
        return read_study(path, name)


@cache
def common_candidates() -> dict[str, list[Settings]]:
    """By method, the settings among which validation chooses where a study is tuned."""
    with resources.as_file(resources.files("fedquilt.studies") / "catalogue" / "candidates.yaml") as path:
        return read_config(path)


def published_path(name: str) -> Path | Traversable:
    """Where a study's published numbers are, if it has any."""
    if name.endswith((".yaml", ".yml")):
        return Path(name).with_suffix(".csv")
    paper, _, rest = name.partition("-")
    return resources.files("fedquilt.studies") / "catalogue" / paper / f"{rest}.csv"


_PAPERS = ("fedpub", "fedsheafhn", "fedhero", "fediih", "fedssa")


def _files() -> dict[str, Traversable]:
    catalogue = resources.files("fedquilt.studies") / "catalogue"
    return {
        f"{paper.name}-{file.name.removesuffix('.yaml')}": file
        for paper in catalogue.iterdir()
        if paper.is_dir()
        for file in paper.iterdir()
        if file.name.endswith(".yaml")
    }


def _order(name: str) -> tuple[Any, ...]:
    paper, kind, *rest = name.split("-")
    number = rest[0] if rest else ""
    known = _PAPERS.index(paper) if paper in _PAPERS else len(_PAPERS)
    return known, paper, kind != "table", int(number) if number.isdigit() else 0, name


def _check_options(options: Mapping[str, Any]) -> None:
    wrong = [name for name in options if name not in OPTIONS]
    if wrong:
        raise ValueError(f"a study cannot set {wrong[0]!r}; it can set {', '.join(sorted(OPTIONS))}")


def _names(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = raw.get(key, {})
    if not isinstance(found, Mapping):
        raise ValueError(f"{key} must be names with something each")
    return found


def _listed(key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{key} must be a list")
    return value


def _mappings(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = _listed(key, raw.get(key, []))
    if not all(isinstance(one, Mapping) for one in found):
        raise ValueError(f"each of {key} must be names with something each")
    return found


def _where(raw: Mapping[str, Any]) -> dict[str, list[str]]:
    return {axis: _labels(labels) for axis, labels in _names(raw, "where").items()}


def _labels(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _plain(name: str) -> str:
    """Names as people type them: `FED-PUB`, `fedpub` and `Fed Pub` are the same."""
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter in "+.")
