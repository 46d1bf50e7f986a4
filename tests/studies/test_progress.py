"""The progress of a study, which displays are made from."""

from __future__ import annotations

import math
from pathlib import Path

from fedquilt.studies.progress import StudyProgress
from support.tiny_studies import cells_of, study_of


def test_cells_are_counted_by_their_outcome_and_running_ones_have_their_rounds(tmp_path: Path) -> None:
    first, second = cells_of(study_of(tmp_path))[:2]
    progress = StudyProgress()
    assert math.isnan(progress.left)
    progress.start(5, 2, 2)
    progress.begin(0, first)
    progress.begin(1, second)
    progress.round(0, 1, 3)
    assert progress.running == {0: (first, 1, 3), 1: (second, 0, 0)}
    progress.end(0, first, "failed", 1.0, 9.0)
    progress.end(1, second, "held", 1.0, 8.0)
    assert (progress.total, progress.done, progress.failed, progress.left) == (5, 2, 1, 8.0)
    progress.begin(0, second)
    progress.end(0, second, "done", 1.0, 7.0)
    assert (progress.done, progress.failed, progress.running) == (3, 1, {})
