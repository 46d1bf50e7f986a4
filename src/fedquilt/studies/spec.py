"""The specification of a study: the axes of its table, the options that their levels set, and the values that it shows.

A study is a YAML file in `catalogue/<paper>/`; its published numbers are in the CSV of the same name (fedquilt docs studies).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from fedquilt.common.printable import printable, shown
from fedquilt.common.registry import load_plugins
from fedquilt.common.validation import fault_of_value, first_problem
from fedquilt.errors import FedquiltError, unknown
from fedquilt.runs.config import RunConfig, Seed
from fedquilt.runs.read_config import read_config
from fedquilt.studies.catalogue_files import common_candidates, is_file_name, study_files

# Options of a run that change where and how fast it is computed, and not the result.
# A cell whose training diverges fails: with other settings it would be no result of the study.
MACHINE_OPTIONS = frozenset(
    {"device", "data", "checkpoint_seconds", "workers", "cohort_size", "threads", "on_divergence"}
)
# The options that a study may set. Seeds are the study's own.
OPTIONS = frozenset(RunConfig.model_fields) - MACHINE_OPTIONS - {"seeds"}
MOST_CELLS = 1_000_000  # more than anyone runs; listing them would take the memory
Settings = dict[str, Any]
Coordinates = dict[str, str]
"""A place of the table: by axis, the label of a level."""


class Level(BaseModel):
    """One level of an axis, such as one method or one number of clients.

    Attributes:
        label: its name in the paper and in the published numbers.
        options: the options that it sets.
        candidates: settings among which validation chooses, on top of `options`; empty: there is no choice.
        missing: why it cannot be run; not needed for a method that fedquilt does not have.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    options: dict[str, Any] = {}
    candidates: list[Settings] = []
    missing: str | None = None

    @classmethod
    def read(cls, axis: str, value: Any) -> Any:
        """Parse a level: a mapping of label, options and settings, or only the value of the option `axis`."""
        if not isinstance(value, Mapping):
            if axis not in OPTIONS:
                raise ValueError(f"{axis} is no option of a run, so write its level {value!r} as a mapping")
            _check_options({axis: value})
            return {"label": str(value), "options": {axis: value}}
        rest = dict(value)
        level = {key: rest.pop(key) for key in ("label", "candidates", "missing") if key in rest}
        _check_value("candidates", level.get("candidates"))
        _check_options(rest)
        return {"label": str(rest.get(axis, "")), **level, "options": rest}

    def called(self, axis: str, name: str) -> bool:
        """Whether a user who writes `axis=name` means this level."""
        names = {self.label, str(self.options.get(axis, self.label))}
        return _plain(name) in {_plain(known) for known in names}


class Override(BaseModel):
    """Options of some places of the table, on top of those of their levels.

    Attributes:
        where: by axis, the labels of its levels; an axis that is not named: all levels.
        options: the options that it sets. candidates: replace those of the level, see `Level`.
        missing: why these places cannot be run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: dict[str, list[str]]
    options: dict[str, Any] = {}
    candidates: list[Settings] | None = None
    missing: str | None = None

    @classmethod
    def read(cls, value: Any) -> Any:
        """Parse an override: a mapping of `where` and options, settings, candidates or missing."""
        rest = dict(value)
        place = {key: rest.pop(key) for key in ("candidates", "missing") if key in rest}
        _check_value("candidates", place.get("candidates"))
        where = _where(rest)
        rest.pop("where", None)
        _check_options(rest)
        return {"where": where, **place, "options": rest}

    def matches(self, at: Coordinates) -> bool:
        """Whether it applies to this place."""
        return all(at.get(axis) in labels for axis, labels in self.where.items())


class FigureSpec(BaseModel):
    """A figure that a study asks for.

    Attributes:
        kind: convergence (metric by round), lines (a value along the axis `x`), bars (a value for each level of `x`),
            similarity (between clients, at `rounds`), communities (missing edges and label similarity between clients),
            filters or class-means (findings of FedSSA).
        x: the axis to draw along. by: the axis with a line or colour for each level. Other axes get a panel for each level.
        value: the value to draw. rounds: the rounds whose similarities are drawn, -1 for the best one.
        where: the places that are drawn, as in an override; empty: all.
        log: whether the x axis is logarithmic.
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
    """A study.

    Attributes:
        name: such as fedpub-table-2.
        title: one line. claim: the paper's conclusion from it, in one sentence. question: what it asks, where it is no paper's.
        notes: sentences about the protocol, and where it differs from the paper's.
        of: what a cell computes: a training (run), a training on the whole graph that is evaluated at the clients (oracle), or
            statistics of a partition (partition).
        seeds: how many, 0 .. seeds - 1. A file may list them instead: then seed_list has them.
        alone: time is measured, so one cell runs at a time.
        tuned: methods without candidates of their own get those of catalogue/candidates.yaml, the same number each.
        choose_on: the number of seeds on which candidates are compared; other seeds run only the chosen one. A file may list
            them instead (choose_on_list), also such that are not reported: those that are had no part in the choice then.
        choose_at: by axis and label of a level, the level of that axis at which its candidates are compared; a level that is
            not named compares its own.
        others: every method that the paper does not have gets a row as well, but for baselines (`Method.baseline`).
        options: the options of all runs.
        axes: by name, the levels; all combinations are the places of the table.
        rows, columns: the axes of the table's rows and columns; each place of the other axes gets a table of its own.
        skip: places that the paper does not have: by axis, labels.
        overrides: options of some places.
        values: by name (see `measures`), the values that are shown, each with its heading.
        better: for each value whether higher or lower is better, or neither: then there are no ranks. Default: higher.
        figures: the figures to draw.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    claim: str = ""
    question: str = ""
    notes: list[str] = []
    of: Literal["run", "oracle", "partition"] = "run"
    seeds: Annotated[int, Field(ge=1)] = 3
    seed_list: list[Seed] = []
    alone: bool = False
    tuned: bool = False
    choose_on: Annotated[int, Field(ge=1)] = 1
    choose_on_list: list[Seed] = []
    choose_at: dict[str, dict[str, str]] = {}
    others: bool = False
    options: dict[str, Any] = {}
    axes: dict[str, Annotated[list[Level], Field(min_length=1)]]
    rows: list[str]
    columns: list[str]
    skip: list[dict[str, list[str]]] = []
    overrides: list[Override] = []
    values: dict[str, str] = {"test": "Test metric (%)"}
    better: dict[str, Literal["higher", "lower", "neither"]] = {}
    figures: list[FigureSpec] = []

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
        for key, listed in (("seeds", "seed_list"), ("choose_on", "choose_on_list")):
            if isinstance(seeds := raw.get(key), list):
                if not seeds or len({str(seed) for seed in seeds}) < len(seeds):
                    raise ValueError(f"{key} must list seeds, each once")
                raw[key], raw[listed] = len(seeds), seeds
        raw["choose_at"] = {
            axis: {str(label): str(other) for label, other in _names({axis: levels}, axis).items()}
            for axis, levels in _names(raw, "choose_at").items()
        }
        raw["overrides"] = [Override.read(one) for one in _mappings(raw, "overrides")]
        raw["skip"] = [{axis: _labels(labels) for axis, labels in one.items()} for one in _mappings(raw, "skip")]
        raw["figures"] = [{**one, "where": _where(one)} for one in _mappings(raw, "figures")]
        return raw

    @model_validator(mode="after")
    def _is_whole(self) -> Study:
        if bool(self.claim) == bool(self.question):
            raise ValueError("it needs a claim (a paper's conclusion) or a question (of your own), and not both")
        for axis, levels in self.axes.items():
            labels = [level.label for level in levels]
            if len(set(labels)) < len(labels) or "" in labels or "average" in labels:
                raise ValueError(f"the levels of {axis} need labels of their own (and none may be 'average')")
        if math.prod(map(len, self.axes.values())) * self.seeds > MOST_CELLS:
            raise ValueError(f"its axes and seeds make more than {MOST_CELLS:,} cells")
        for axis in [*self.rows, *self.columns]:
            self._check_axis(axis)
        if len(set(self.rows + self.columns)) < len(self.rows + self.columns) or not self.rows or not self.columns:
            raise ValueError("rows and columns need an axis each, and no axis twice")
        elsewhere = [{axis: [*levels, *levels.values()]} for axis, levels in self.choose_at.items()]
        for where in [*self.skip, *elsewhere, *(o.where for o in self.overrides), *(f.where for f in self.figures)]:
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
        """The paper that the table is from: the first word of the name."""
        return self.name.partition("-")[0]

    @property
    def lead(self) -> str:
        """The sentence under the title: the paper's claim, or the study's own question."""
        return f"The paper says: {self.claim}" if self.claim else f"The question: {self.question}"

    @property
    def tables(self) -> list[str]:
        """The axes that are neither rows nor columns; each of their places gets a table."""
        return [axis for axis in self.axes if axis not in self.rows and axis not in self.columns]

    def reported_seeds(self, count: int | None = None) -> list[int]:
        """The seeds whose numbers are shown, or the first `count`; a study that lists its seeds has no others."""
        return self.seed_list[:count] if self.seed_list else list(range(count or self.seeds))

    def choosing_seeds(self) -> list[int]:
        """The seeds on which candidates are compared."""
        return self.choose_on_list or self.reported_seeds()[: self.choose_on]

    def reports(self, seed: int) -> bool:
        """Whether this seed's numbers are shown; a seed that only compares candidates is left out."""
        return seed in self.reported_seeds() or seed not in self.choosing_seeds()

    def chosen_at(self, at: Coordinates) -> Coordinates:
        """The place whose comparison of candidates decides about this place; mostly the place itself."""
        return {axis: self.choose_at.get(axis, {}).get(label, label) for axis, label in at.items()}

    def compares(self, at: Coordinates, seed: int) -> bool:
        """Whether all candidates are run at this place with this seed; else only the chosen one is."""
        return seed in self.choosing_seeds() and self.chosen_at(at) == at

    def level(self, axis: str, label: str) -> Level:
        """The level of an axis with this label."""
        return next(level for level in self.axes[axis] if level.label == label)

    def places(self) -> Iterator[Coordinates]:
        """All places of the table, in the order of the axes."""
        labels = [[level.label for level in levels] for levels in self.axes.values()]
        for combination in itertools.product(*labels):
            at = dict(zip(self.axes, combination, strict=True))
            if not any(all(at[axis] in skipped for axis, skipped in one.items()) for one in self.skip):
                yield at

    def options_at(self, at: Coordinates) -> dict[str, Any]:
        """The options of a run at this place: the study's, then those of its levels, then of overrides."""
        parts = [self.options, *(self.level(axis, label).options for axis, label in at.items())]
        parts += [override.options for override in self.overrides if override.matches(at)]
        merged: dict[str, Any] = {}
        for part in parts:
            settings = merged.get("settings", {}) | part.get("settings", {})
            merged = merged | part | ({"settings": settings} if settings else {})
        return merged

    def candidates_at(self, at: Coordinates) -> list[Settings]:
        """The settings among which validation chooses at this place; `[{}]` where there is no choice."""
        found = [c for axis, label in at.items() if (c := self.level(axis, label).candidates)]
        found += [o.candidates for o in self.overrides if o.candidates is not None and o.matches(at)]
        if not found and self.tuned:
            found = [common_candidates().get(self.options_at(at).get("method", ""), [])]
        return found[-1] if found and found[-1] else [{}]

    def missing_at(self, at: Coordinates) -> str | None:
        """Why a place cannot be run, according to its levels or an override; None where they say nothing."""
        reasons = [self.level(axis, label).missing for axis, label in at.items()]
        reasons += [override.missing for override in self.overrides if override.matches(at)]
        return next((reason for reason in reasons if reason), None)

    def only(self, wanted: Mapping[str, Sequence[str]]) -> Study:
        """The study reduced to some levels: by axis, their names."""
        axes = dict(self.axes)
        for axis, names in wanted.items():
            if axis not in axes:
                raise unknown(f"axis of {self.name}", axis, axes)
            for name in names:
                if not any(level.called(axis, name) for level in axes[axis]):
                    raise unknown(f"{axis} of {self.name}", name, [level.label for level in axes[axis]])
            axes[axis] = [level for level in axes[axis] if any(level.called(axis, name) for name in names)]
            kept = {level.label for level in axes[axis]}
            needed = {at for label, at in self.choose_at.get(axis, {}).items() if label in kept} - kept
            if needed:
                raise FedquiltError(
                    f"The settings of {axis}={','.join(names)} are chosen at {axis}={min(needed)}; add that to --only."
                )
        return self.model_copy(update={"axes": axes})


def read_study(path: Path, name: str) -> Study:
    """Read a study from its file; `FedquiltError` with one sentence about the first thing that is wrong."""
    values = _with_base(read_config(path))
    try:
        study = Study.model_validate({**values, "name": name})
    except ValidationError as error:
        problem = first_problem(error)
        where = f" at {problem.field}" if problem.field else ""
        raise FedquiltError(f"The study {name} is not sound{where}: {problem.text}.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise FedquiltError(f"The study {name} is not sound: {error}.") from None
    load_plugins(study.options.get("plugins", []), named=False)  # its levels may name what they register
    return study


def find_study(name: str) -> Study:
    """Read a study by its name, or from a YAML file of the user's."""
    if is_file_name(name):
        return read_study(Path(name), Path(name).stem)
    with _catalogue_file(name) as path:
        return read_study(path, name)


def _catalogue_file(name: str) -> AbstractContextManager[Path]:
    """The file of a study of the catalogue, for a block."""
    files = study_files()
    if name not in files:
        raise unknown("study", name, files)
    return resources.as_file(files[name])


def _with_base(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a study's file, after those of the study of the catalogue that it is like, where it names one."""
    like = values.pop("like", None)
    if like is None:
        return values
    with _catalogue_file(printable(str(like))) as path:
        return {**_with_base(read_config(path)), **values}


def _check_options(options: Mapping[str, Any]) -> None:
    wrong = [name for name in options if name not in OPTIONS]
    if wrong:
        raise ValueError(f"a study cannot set {shown(wrong[0])}; it can set {', '.join(sorted(OPTIONS))}")
    for name, value in options.items():
        _check_value(name, value)
        try:
            _option_type(name).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"{name} cannot be {shown(value)}: {first_problem(error).message}") from None


def _check_value(name: str, value: Any) -> None:
    if fault := fault_of_value(value):
        raise ValueError(f"{name} cannot be {shown(value)}: {fault}")


@cache
def _option_type(name: str) -> TypeAdapter[Any]:
    """The type of a run option with its bounds, without what other options say about it."""
    return TypeAdapter(RunConfig.model_fields[name].rebuild_annotation())


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
    """A name without case and punctuation: `FED-PUB`, `fedpub` and `Fed Pub` are the same."""
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter in "+.")
