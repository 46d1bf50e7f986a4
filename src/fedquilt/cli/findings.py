"""The figures of what a method found beside its models, for one run or for two side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.cli.console import say
from fedquilt.cli.pictures import title
from fedquilt.cli.reading import RunSoFar
from fedquilt.errors import FedquiltError

if TYPE_CHECKING:
    import numpy as np

# What a run is called by when it differs: not where and how fast it ran, nor all of its seeds, of which one is drawn.
_NO_NAME = {
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
_MOST_NAMED = 3


@dataclass(frozen=True)
class Found:
    """What one seed of a run found."""

    run: RunSoFar
    seed: int
    findings: dict[str, np.ndarray]


def read_findings(run: RunSoFar, seed: int | None = None) -> list[Found]:
    """The findings of `seed`, or else of the first seed that has any; nothing where none has."""
    from fedquilt.runs.folder import RunFolder

    folder = RunFolder.open(run.folder)
    for number in sorted(run.config["seeds"], key=lambda number: number != seed):
        findings = folder.seed(number).load_arrays("findings")
        if findings:
            return [Found(run, number, findings)]
    return []


def read_pair(run: RunSoFar, other: RunSoFar) -> list[Found]:
    """The findings of two runs that can be drawn side by side."""
    if run.method != other.method:
        raise FedquiltError(
            f"{run.folder} is a run of {run.method} and {other.folder} one of {other.method}; "
            "--against takes a run of the same method."
        )
    pair: list[Found] = []
    for one in (run, other):
        pair += (found := read_findings(one, pair[0].seed if pair else None))
        if not found:
            raise FedquiltError(
                f"The run in {one.folder} has no findings to draw: its method has none, or no seed is done."
            )
    shapes = [found.findings["class_means"].shape[1:] for found in pair if "class_means" in found.findings]
    if len(set(shapes)) > 1:  # they would not fit in one plane
        here, there = (f"{classes} classes in {width} dimensions" for classes, width in shapes)
        raise FedquiltError(f"The class means of the two runs do not compare: {here}, and {there}.")
    return pair


def draw_findings(runs: list[Found], into: Path, suffix: str = ".png") -> list[Path]:
    """The figures of one run's findings, or of two runs' side by side where both have what a figure needs."""
    from fedquilt.reports import findings
    from fedquilt.reports.style import save_figure

    if not runs:
        return []
    names = [""] if len(runs) == 1 else differences(*runs)
    method, seeds = title(runs[0].run.method), {found.seed for found in runs}
    heading = f"{method}, seed {min(seeds)}" if len(seeds) == 1 else method
    figures: list[tuple[str, Callable, Callable]] = [
        ("filters", findings.has_filters, findings.filters_figure),
        ("class-means", findings.has_class_means, findings.class_means_figure),
    ]
    paths = []
    for file, has, figure in figures:
        if not has(runs[0].findings):
            continue
        columns = [(name, found.findings) for name, found in zip(names, runs, strict=True) if has(found.findings)]
        path = into / f"{file}{suffix}"
        save_figure(figure(columns, heading), path)
        paths.append(path)
        if file == "class-means" and not findings.can_tsne():
            say(f"{path} shows principal components; for t-SNE: pip install 'fedquilt[figures]'.")
    return paths


def differences(one: Found, two: Found) -> list[str]:
    """What to call two runs: what they were told differently, such as semantic=True; else their folders."""
    mine, other = _told(one), _told(two)
    keys = [key for key in mine if key in other and mine[key] != other[key]][:_MOST_NAMED]
    if not keys:
        return [str(one.run.folder), str(two.run.folder)]
    return [", ".join(f"{key}={told[key]}" for key in keys) for told in (mine, other)]


def _told(found: Found) -> dict[str, Any]:
    """What a run was told: the method's settings, those left at their defaults as well, then everything else."""
    config: Mapping[str, Any] = found.run.config
    settings = config.get("resolved", {}).get("settings", config["settings"])
    return {**settings, **{k: v for k, v in config.items() if k not in _NO_NAME}, "seed": found.seed}
