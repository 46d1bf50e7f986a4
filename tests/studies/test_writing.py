"""A report as CSV, Markdown, LaTeX, and for the terminal."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rich.console import Console

from fedquilt.studies.cells import Missing
from fedquilt.studies.compute_version import compute_version
from fedquilt.studies.grids import all_grids
from fedquilt.studies.spec import Study
from fedquilt.studies.summary import Summary
from fedquilt.studies.writing import (
    absences,
    for_terminal,
    left_out,
    provenance,
    to_csv,
    to_latex,
    to_markdown,
    verdict_sentences,
)
from support.tiny_studies import grid_study, scored, study_of

numbers = st.sampled_from([10.0, 20.123456789, 20.5, 1e-7, math.nan])
ODD = "50% & more_or #less $x {y} ~z^2 a\\b |c| <d>"


def odd(folder: Path) -> Summary:
    """A study with labels, titles and headings that every format has to escape."""
    study = study_of(
        folder,
        title=f"Odd, Table 1: {ODD}",
        claim=f"It says {ODD}.",
        notes=[f"A note on {ODD}."],
        values={"test": f"Test {ODD}"},
        axes={
            "method": [{"label": "Local", "method": "local"}, {"label": ODD, "method": "fedavg"}],
            "clients": [{"label": ODD, "clients": 2}, 3],
        },
    )
    return scored(study, [[[60.0, 61.0], [1.0, 2.0]], [[70.0, 70.5], [3.0, 3.0]]], {(1, 0): 70.2, (0, 1): 9.0})


@settings(max_examples=15)
@given(arrays(np.float64, (3, 2, 3), elements=numbers), st.data())
def test_csv_parses_back_to_the_entries(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, data: Any
) -> None:
    places = st.tuples(st.integers(0, 2), st.integers(0, 1))
    printed = data.draw(st.dictionaries(places, st.sampled_from([9.5, 20.0, math.nan])))
    summary = scored(grid_study(tmp_path_factory.mktemp("s"), 3, 2), values, printed)
    lines = list(csv.DictReader(io.StringIO(to_csv(summary))))
    assert len(lines) == len(summary.entries)
    ranks = summary.ranks("test")

    def same(text: str, x: float | None) -> bool:
        return text == "" if x is None or math.isnan(x) else float(text) == pytest.approx(x, rel=1e-5, abs=1e-12)

    for line, entry in zip(lines, summary.entries, strict=True):
        assert {axis: line[axis] for axis in entry.at} == entry.at
        assert line["value"] == "test"
        assert int(line["seeds"]) == len(entry.by_seed)
        assert [float(x) for x in line["by_seed"].split()] == pytest.approx(list(entry.by_seed.values()), rel=1e-5)
        for name in ("mean", "std", "difference"):
            assert same(line[name], getattr(entry, name)), name
        assert same(line["published_mean"], entry.printed)
        assert same(line["rank"], ranks.get((summary.row(entry.at), summary.column(entry.at))))
        assert line["verdict"] == entry.verdict


def test_csv_has_odd_labels_as_they_are(tmp_path: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(odd(tmp_path)))))
    assert [line["method"] for line in lines] == ["Local", "Local", ODD, ODD]


def tables(markdown: str) -> list[list[list[str]]]:
    """The tables of a Markdown text, cells apart; a bar after a backslash is text."""
    found: list[list[list[str]]] = [[]]
    for line in markdown.splitlines():
        if line.startswith("|"):
            found[-1].append(re.split(r"(?<!\\)\|", line)[1:-1])
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def test_markdown_tables_have_as_many_cells_in_each_row(tmp_path: Path) -> None:
    for summary in (odd(tmp_path), scored(grid_study(tmp_path, 3, 6), np.random.default_rng(0).random((3, 6, 3)))):
        text = to_markdown(summary, "fedquilt study run odd")
        found = tables(text)
        assert len(found) == len(all_grids(summary))
        for table, grid in zip(found, all_grids(summary), strict=True):
            assert {len(row) for row in table} == {1 + len(grid.columns)}
            assert len(table) == 2 + len(grid.rows)
            assert set(table[1][0].strip()) == {"-"}


def test_markdown_says_what_it_is(tmp_path: Path) -> None:
    text = to_markdown(odd(tmp_path), "fedquilt study run odd --seeds 2")
    assert text.startswith(
        f"# Odd, Table 1: {ODD}\n\nThe paper says: It says {ODD}.\n\n    fedquilt study run odd --seeds 2\n"
    )
    assert f"- A note on {ODD}." in text
    assert "| **70.25 ± 0.25** (70.20, +0.05 ▲) |" in text
    assert "| 1.50 ± 0.50 (9.00, -7.50 ▼) |" in text


def unescaped(tex: str, letter: str) -> int:
    return len(re.findall(rf"(?<!\\){re.escape(letter)}", tex))


def test_latex_is_balanced_and_escapes_what_tex_would_read(tmp_path: Path) -> None:
    summary = odd(tmp_path)
    tex = to_latex(summary)
    body = tex.split("\n", 1)[1]  # after the comment
    assert unescaped(body, "{") == unescaped(body, "}") > 0
    assert body.count(r"\begin{") == body.count(r"\end{")
    assert unescaped(body, "%") == unescaped(body, "#") == unescaped(body, "_") == unescaped(body, "~") == 0
    assert unescaped(body, "$") % 2 == 0
    assert r"50\% \& more\_or \#less \$x \{y\} \textasciitilde{}z\^{}2 a\textbackslash{}b |c| $<$d$>$" in body
    assert "±" not in body
    for table in re.findall(r"\\begin\{tabular\}\{(l+r+)\}(.*?)\\end\{tabular\}", body, flags=re.S):
        rows = [row for row in table[1].split(r"\\") if "&" in row]
        assert {unescaped(row, "&") for row in rows} == {len(table[0]) - 1}
    assert len(re.findall(r"\\begin\{table\}", body)) == len(all_grids(summary))
    assert r"\textbf{70.25} {\scriptsize$\pm$ 0.25} {\scriptsize\color{gray}(70.20)}" in body


def printed(summary: Summary) -> str:
    console = Console(file=io.StringIO(), width=200)
    for grid in all_grids(summary):
        console.print(for_terminal(grid))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_shows_published_numbers_differences_and_signs(tmp_path: Path) -> None:
    values = np.array([[70.0, 69.5], [60.0, math.nan]])[:, :, None]
    text = printed(scored(grid_study(tmp_path, 2, 2), values, {(0, 0): 69.0, (0, 1): 70.0, (1, 0): 80.0, (1, 1): 3.0}))
    assert "69.00 +1.00 ▲" in text
    assert "70.00 -0.50 ≈" in text
    assert "80.00 -20.00 ▼" in text
    assert "–" in text
    assert "3.00" in text


# -- sentences ---------------------------------------------------------------------------------------


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
    mixed = with_facts(study, empty, codes={"a": 2, "b": 1}, machines={"CPU, PyTorch 2": 3})
    assert provenance(mixed) == [
        "3 runs on CPU, PyTorch 2.",
        "The runs were computed by different versions of the code (2 by a, 1 by b); run the study again to mend that.",
    ]
    assert "by another version of the code (a)" in provenance(with_facts(study, empty, codes={"a": 2}))[0]
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
