"""The formats of a report: CSV, Markdown, LaTeX and terminal."""

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

from fedquilt.studies.formats import for_terminal, to_csv, to_latex, to_markdown
from fedquilt.studies.summary import Summary
from fedquilt.studies.tables import all_tables
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
        assert len(found) == len(all_tables(summary))
        for lines, table in zip(found, all_tables(summary), strict=True):
            assert {len(row) for row in lines} == {1 + len(table.columns)}
            assert len(lines) == 2 + len(table.rows)
            assert set(lines[1][0].strip()) == {"-"}


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
    assert len(re.findall(r"\\begin\{table\}", body)) == len(all_tables(summary))
    assert r"\textbf{70.25} {\scriptsize$\pm$ 0.25} {\scriptsize\color{gray}(70.20)}" in body


def printed(summary: Summary) -> str:
    console = Console(file=io.StringIO(), width=200)
    for table in all_tables(summary):
        console.print(for_terminal(table))
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
