"""Counts of printed numbers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fedquilt.studies.scoreboard import verdicts
from fedquilt.studies.scoreboard.results import StudyResult
from fedquilt.studies.scoreboard.verdicts import Verdicts, all_verdicts
from support.tiny_studies import PUBLISHED, scored, study_of


def test_studies_that_were_run_and_that_were_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["fedpub-table-8", "fedhero-table-3", "fedhero-table-3-copies", "fedhero-table-2"]
    monkeypatch.setattr(verdicts, "study_names", lambda: names)
    study = study_of(tmp_path, published=PUBLISHED)
    result = StudyResult(scored(study, np.full((3, 2, 1), 60.0), {(0, 0): 59.0, (1, 0): 60.5, (2, 1): 90.0}), {})
    first, second = all_verdicts(
        {"fedpub-table-8": result}
    )  # the third has the numbers of the second, the fourth has none
    assert (first.counts, first.printed, first.run) == ((1, 1, 1, 21), 24, 3)
    assert second.counts == (0, 0, 0, 128)
    assert (first.label, second.label) == ("FED-PUB, Table 8", "FedHERO, Table 3")
    assert first.plus(second).counts == (1, 1, 1, 149)
    assert Verdicts("fedpub-table-12-oracle", "FED-PUB, Table 12: x").label == "FED-PUB, Table 12 (oracle)"
    assert not math.isnan(first.printed)
