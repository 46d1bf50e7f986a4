"""Results of studies for the tests of the scoreboard, made without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.studies.scoreboard.results import StudyResult
from support.tiny_studies import scored, study_of

METHODS = ("local", "fedavg", "fedpub", "quilt")


def tuned(
    folder: Path,
    values: Any,
    name: str = "one",
    methods: tuple[str, ...] = METHODS,
    costs: dict[str, tuple[float, float]] | None = None,
    **changes: Any,
) -> StudyResult:
    """A tuned study with numbers [methods, graphs, seeds]; `costs` are seconds and megabytes up by method."""
    shape = np.asarray(values).shape
    axes = {
        "method": [{"label": f"The {name}", "method": name} for name in methods],
        "dataset": [{"label": f"g{number}", "dataset": f"communities-{number + 2}"} for number in range(shape[1])],
    }
    study = study_of(folder, name, axes=axes, columns=["dataset"], tuned=True, seeds=shape[2], **changes)
    summary = scored(study, values)
    found = {
        tuple(entry.at.values()): {"seconds": cost[0], "upload_mb": cost[1], "download_mb": 0.0}
        for entry in summary.entries
        if (cost := (costs or {}).get(entry.at["method"].removeprefix("The "))) is not None
    }
    return StudyResult(summary, found)
