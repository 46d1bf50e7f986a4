"""Figures of what a method found beside its models, for one run or for two side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.reports import findings
from fedquilt.reports.names import method_title
from fedquilt.reports.read_run import StoredRun
from fedquilt.reports.style import save_figure
from fedquilt.reports.views import ViewWeights, read_views, views_figure

# Options that do not name a run when two differ: where and how fast it ran, and all its seeds, of which one is drawn.
_UNNAMED = {
    "method",
    "settings",
    "resolved",
    "versions",
    "seeds",
    "device",
    "data",
    "cohort_size",
    "checkpoint_seconds",
}
_MAX_NAMED = 3


@dataclass(frozen=True)
class SeedFindings:
    """The findings of one seed of a run, by name (see `fedquilt.reports.findings`)."""

    run: StoredRun
    seed: int
    findings: dict[str, np.ndarray]


def read_findings(run: StoredRun, seed: int | None = None) -> SeedFindings | None:
    """The findings of `seed`, else of the first seed that has any; None where no seed has."""
    for one in sorted(run.seeds, key=lambda one: one.seed != seed):
        if arrays := one.folder.load_arrays("findings"):
            return SeedFindings(run, one.seed, arrays)
    return None


def read_pair(run: StoredRun, other: StoredRun) -> list[SeedFindings]:
    """The findings of two runs to draw side by side; an error where they do not compare."""
    if run.method != other.method:
        raise FedquiltError(
            f"{run.folder} is a run of {run.method} and {other.folder} one of {other.method}; "
            "--against takes a run of the same method."
        )
    pair: list[SeedFindings] = []
    for one in (run, other):
        found = read_findings(one, pair[0].seed if pair else None)
        if found is None:
            raise FedquiltError(
                f"The run in {one.folder} has no findings to draw: its method has none, or no seed is done."
            )
        pair.append(found)
    shapes = [found.findings["class_means"].shape[1:] for found in pair if "class_means" in found.findings]
    if len(set(shapes)) > 1:  # they would not fit in one plane
        here, there = (f"{classes} classes in {width} dimensions" for classes, width in shapes)
        raise FedquiltError(f"The class means of the two runs do not compare: {here}, and {there}.")
    return pair


def views_of(found: SeedFindings) -> ViewWeights | None:
    """The weights of the method's views, where it has any."""
    seed = next(one for one in found.run.seeds if one.seed == found.seed)
    return read_views(found.run, seed, found.findings)


def draw_findings(runs: Sequence[SeedFindings], into: Path, suffix: str = ".png") -> tuple[list[Path], list[str]]:
    """Draw one run's findings, or two runs' side by side where both have what a figure needs.

    Returns the files, and a sentence where a figure would be better with an optional package.
    """
    paths: list[Path] = []
    notes: list[str] = []
    if not runs:
        return paths, notes
    names = [""] if len(runs) == 1 else differences(*runs)
    method, seeds = method_title(runs[0].run.method), {found.seed for found in runs}
    heading = f"{method}, seed {min(seeds)}" if len(seeds) == 1 else method
    class_names = runs[0].run.class_names
    kinds: list[tuple[str, Callable, Callable]] = [
        ("filters", findings.has_filters, findings.filters_figure),
        ("class-means", findings.has_class_means, partial(findings.class_means_figure, class_names=class_names)),
    ]
    for file, has, figure in kinds:
        if not has(runs[0].findings):
            continue
        columns = [(name, found.findings) for name, found in zip(names, runs, strict=True) if has(found.findings)]
        path = into / f"{file}{suffix}"
        save_figure(figure(columns, heading), path)
        paths.append(path)
        if file == "class-means" and not findings.can_tsne():
            notes.append(f"{path} shows principal components; for t-SNE: pip install 'fedquilt[figures]'.")
    return paths + _draw_views(list(zip(names, runs, strict=True)), heading, into / f"views{suffix}"), notes


def _draw_views(runs: Sequence[tuple[str, SeedFindings]], heading: str, path: Path) -> list[Path]:
    """Draw which views the clients rely on; nothing where the first run has no views."""
    if views_of(runs[0][1]) is None:
        return []
    columns = [(name, weights) for name, found in runs if (weights := views_of(found)) is not None]
    save_figure(views_figure(columns, f"{heading}: the views that clients rely on"), path)
    return [path]


def differences(one: SeedFindings, two: SeedFindings) -> list[str]:
    """A name for each of two runs: the options in which they differ, such as semantic=True; else their folders."""
    first, second = _options(one), _options(two)
    keys = [key for key in first if key in second and first[key] != second[key]][:_MAX_NAMED]
    if not keys:
        return [str(one.run.folder), str(two.run.folder)]
    return [", ".join(f"{key}={options[key]}" for key in keys) for options in (first, second)]


def _options(found: SeedFindings) -> dict[str, Any]:
    """The method's settings, defaults included, then the run's other options and the seed."""
    config = found.run.config
    settings = config.get("resolved", {}).get("settings", config["settings"])
    return {**settings, **{k: v for k, v in config.items() if k not in _UNNAMED}, "seed": found.seed}
