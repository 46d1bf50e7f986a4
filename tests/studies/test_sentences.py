"""The sentences of a report."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.runs.compute_version import compute_version
from fedquilt.studies.cells import Missing
from fedquilt.studies.formats import to_markdown
from fedquilt.studies.sentences import absences, left_out, provenance, verdict_sentences
from fedquilt.studies.spec import Study
from fedquilt.studies.store import StoredCell
from fedquilt.studies.summary import Summary
from support.tiny_studies import grid_study, scored


def with_facts(study: Study, summary: Summary, **facts: Any) -> Summary:
    base = {"averages": [], "failed": {}, "missing": [], "codes": {}, "machines": {}}
    return Summary(study, summary.entries, **(base | facts))


def test_how_far_a_study_is_and_how_many_published_numbers_were_reached(tmp_path: Path) -> None:
    study = grid_study(tmp_path, 2, 2, seeds=3)
    values = np.array([[[70.0, 71.0], [1.0, math.nan]], [[5.0, 5.0], [math.nan, math.nan]]])
    summary = scored(study, values, {(0, 0): 70.0, (0, 1): 1.5, (1, 0): 9.0, (1, 1): 3.0})
    assert verdict_sentences(summary) == [
        "5 of 8 runs are done.",
        "2 seeds; the paper has 3.",
        "Test metric (%): of 4 published numbers 1 exceeded, 1 reached within 1.0 below, 1 missed, 1 not run.",
    ]
    facts = grid_study(tmp_path, 1, 1, seeds=1, better={"test": "neither"})
    assert verdict_sentences(scored(facts, [[[100.0]]], {(0, 0): 100.5})) == [
        "Test metric (%): of 1 published numbers 1 reached within one percent, 0 missed, 0 not run."
    ]


def test_where_the_numbers_come_from(tmp_path: Path) -> None:
    study = grid_study(tmp_path, 1, 1)
    empty = scored(study, [[[1.0]]])
    assert provenance(empty) == []
    aged = [replace(empty.entries[0], cells={0: StoredCell(Path("a"), {"code": "v1.5"})})]
    mixed = replace(empty, entries=aged, codes={"v1.5": 1, "b": 2}, machines={"CPU, PyTorch 2": 3})
    assert provenance(mixed) == [
        "3 runs on CPU, PyTorch 2.",
        "1 of 3 runs are stale (†): another version of the computation finished them (1 by v1.5, 2 by b); "
        "'fedquilt study run' with --stale runs exactly these again.",
    ]
    assert "1.00†" in to_markdown(mixed, "x")
    assert "by the installed code" in provenance(with_facts(study, empty, codes={compute_version(): 2}))[0]


def test_what_is_left_out_or_failed_is_a_sentence_each(tmp_path: Path) -> None:
    study = grid_study(tmp_path, 1, 1)
    gone = [Missing({}, "the method x is not in fedquilt yet", "x"), Missing({}, "no graph."), Missing({}, "no graph")]
    sentences = left_out(gone)
    assert len(sentences) == 2
    assert "1 places: methods that are not in fedquilt yet (x)." in sentences[0]
    assert sentences[1] == "Left out, 2 places: no graph."
    summary = with_facts(study, scored(study, [[[1.0]]]), missing=gone, failed={"A, 2, seed 0": "it rained."})
    assert absences(summary) == [*sentences, "Failed: A, 2, seed 0: it rained."]
    assert "- Failed: A, 2, seed 0: it rained." in to_markdown(summary, "x")
