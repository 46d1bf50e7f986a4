"""A study's summary as tables: one way to lay them out, for the terminal, Markdown, LaTeX and the HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from fedquilt.studies.cells import written
from fedquilt.studies.significance import against, reference_row
from fedquilt.studies.summary import EXCEEDED, MISSED, REACHED, Entry, Ranks, Summary

Best = set[tuple[tuple[str, ...], tuple[str, ...]]]
SIGNS = {EXCEEDED: "▲", REACHED: "≈", MISSED: "▼"}
_DIGITS = {
    "clustering": 3,
    "heterogeneity": 3,
    "label_correlation": 3,
    "best_round": 0,
    "classes": 0,
    "nodes": 0,
    "edges": 0,
    "seconds": 4,
}


@dataclass(frozen=True)
class GridCell:
    """A cell: our number, what is printed, how they compare (a verdict or nothing), whether ours is the best of its column."""

    text: str
    printed: str = ""
    difference: str = ""
    verdict: str = ""
    best: bool = False
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        title: what it shows.
        head: what the first column holds. columns: the headings of the others.
        rows: the label of each row and its cells.
        numbers: whether cells are numbers, which stand to the right.
    """

    title: str
    head: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[GridCell, ...]], ...]
    numbers: bool = True


def result_grids(summary: Summary) -> Iterator[Grid]:
    """Our numbers beside the published ones: a table for each value and each level of all axes but rows and last column.

    Columns of several axes would not fit on a page. Tables of which nothing is run are left out.
    """
    study = summary.study
    parts = [*study.tables, *study.columns[:-1]]
    for value, heading in study.values.items():
        best = _best(summary.ranks(value))
        for part in product(*([level.label for level in study.axes[axis]] for axis in parts)):
            fixed = dict(zip(parts, part, strict=True))
            entries = [e for e in summary.of(value) if all(e.at[axis] == label for axis, label in fixed.items())]
            if any(entry.by_seed for entry in entries):
                yield _result_grid(summary, entries, ", ".join([*part, heading]), best)


def _result_grid(summary: Summary, entries: Sequence[Entry], title: str, best: Best) -> Grid:
    last = summary.study.columns[-1]
    here = {(summary.row(e.at), e.at[last]): e for e in entries}
    columns = [level.label for level in summary.study.axes[last] if any(e.at[last] == level.label for e in entries)]
    rows = []
    for row in dict.fromkeys(summary.row(e.at) for e in entries):
        cells = []
        for column in columns:
            entry = here.get((row, column))
            cells.append(_cell(entry, entry is not None and (row, summary.column(entry.at)) in best))
        rows.append((" / ".join(row), tuple(cells)))
    return Grid(title, _head(summary), tuple(heading(last, label) for label in columns), tuple(rows))


def rank_grid(summary: Summary, value: str) -> Grid | None:
    """A line a row: its mean rank, in how many columns it is best, how it stands to what is printed; None without ranks."""
    means, bests = summary.mean_ranks(value), _best(summary.ranks(value))
    if not means:
        return None
    rows = []
    lowest = min(means.values())
    for row, rank in sorted(means.items(), key=lambda item: item[1]):
        mine = [entry for entry in summary.of(value) if summary.row(entry.at) == row]
        counts = [sum(entry.verdict == verdict for entry in mine) for verdict in (EXCEEDED, REACHED, MISSED)]
        best = sum((row, summary.column(entry.at)) in bests for entry in mine)
        printed = any(entry.verdict for entry in mine)
        rows.append(
            (
                " / ".join(row),
                (
                    GridCell(f"{rank:.2f}", best=rank == lowest),
                    GridCell(str(best)),
                    *(GridCell(str(count) if printed else "–") for count in counts),
                ),
            )
        )
    columns = ("Mean rank", "Best in", "Exceeded", "Within 1.0", "Missed")
    return Grid(f"Ranks, {summary.study.values[value]}", _head(summary), columns, tuple(rows))


def pair_grid(summary: Summary, value: str) -> Grid | None:
    """The paper's own method, or the best row, against each other row; None where there is nothing to compare."""
    reference = reference_row(summary, value)
    if reference is None:
        return None
    rows = []
    for pair in against(summary, value, reference):
        p = "–" if math.isnan(pair.wilcoxon) else f"{pair.wilcoxon:.2g}"
        rows.append(
            (
                f"{reference} against {pair.second}",
                (
                    GridCell(f"{pair.difference:+.2f}"),
                    GridCell(f"{pair.wins} / {pair.losses} of {pair.cells}"),
                    GridCell(p, best=not math.isnan(pair.wilcoxon) and pair.wilcoxon < 0.05),
                    GridCell(f"{pair.better_seeds} / {pair.worse_seeds}"),
                ),
            )
        )
    columns = (
        "Mean difference",
        "Wins / losses",
        "Wilcoxon p over cells",
        "Cells better / worse, paired t over seeds (p < 0.05)",
    )
    return Grid(f"Who can be told apart, {summary.study.values[value]}", "Pair", columns, tuple(rows)) if rows else None


def margin_grid(summary: Summary, value: str) -> Grid | None:
    """How far each row is above Local on the same splits, ours beside the printed margin: what a method is for.

    Means over the columns where both papers' rows and ours have numbers; None where there is no row of Local's.
    """
    study = summary.study
    local = [level.label for level in study.axes.get("method", []) if level.options.get("method") == "local"]
    if study.rows != ["method"] or not local or study.better.get(value, "higher") != "higher":
        return None
    base = {summary.column(e.at): e for e in summary.of(value) if e.at["method"] == local[0]}
    rows = []
    for label in dict.fromkeys(e.at["method"] for e in summary.of(value)):
        all_of_it = [e for e in summary.of(value) if e.at["method"] == label and summary.column(e.at) in base]
        mine = [(e, base[summary.column(e.at)]) for e in all_of_it]
        ours = _mean(e.mean - b.mean for e, b in mine)
        printed = _mean(e.printed - b.printed for e, b in mine)
        both = _mean(e.mean - b.mean for e, b in mine if not math.isnan(e.printed - b.printed))
        if label != local[0] and not math.isnan(ours):
            rows.append((label, (GridCell(_signed(ours)), GridCell(_signed(both)), GridCell(_signed(printed)))))
    columns = ("Ours", "Ours, where printed", "Printed")
    return Grid(f"Margin over {local[0]}, {study.values[value]}", "Method", columns, tuple(rows)) if rows else None


def settings_grid(summary: Summary) -> Grid | None:
    """What validation chose at each place; None where there was nothing to choose."""
    study = summary.study
    entries = [e for e in summary.of(next(iter(study.values))) if e.choices > 1 and e.by_seed]
    if not entries:
        return None
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for entry in entries:
        place = " ".join(summary.column(entry.at))
        chosen = written(entry.settings) or "defaults"
        rows.setdefault(summary.row(entry.at), {}).setdefault(chosen, []).append(place)
    return Grid(
        "What validation chose",
        _head(summary),
        ("Settings: where",),
        tuple(
            (" / ".join(row), (GridCell("; ".join(f"{s}: {', '.join(places)}" for s, places in by.items())),))
            for row, by in rows.items()
        ),
        numbers=False,
    )


def _cell(entry: Entry | None, best: bool) -> GridCell:
    if entry is None:
        return GridCell("")
    printed = "" if math.isnan(entry.printed) else number(entry.value, entry.printed)
    note = entry.published.note if entry.published is not None else ""
    if not entry.by_seed:
        return GridCell("–", printed, note=entry.missing or note)
    text = number(entry.value, entry.mean)
    if not math.isnan(entry.std):
        text += f" ± {number(entry.value, entry.std)}"
    if len(entry.by_seed) < entry.planned:
        text += f" ({len(entry.by_seed)} of {entry.planned})"
    difference = "" if math.isnan(entry.difference) else _signed(entry.difference, entry.value)
    return GridCell(text, printed, difference, entry.verdict, best, note)


def number(value: str, x: float) -> str:
    """A value as text, with the digits that suit it."""
    digits = _DIGITS.get(value, 2)
    return f"{x:,.{digits}f}"


def _signed(x: float, value: str = "test") -> str:
    return "–" if math.isnan(x) else f"{x:+,.{_DIGITS.get(value, 2)}f}"


def _mean(values: Iterator[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _best(ranks: Ranks) -> Best:
    """By row and column, the best of each column: more than one where they are equal."""
    lowest: dict[tuple[str, ...], float] = {}
    for (_, column), rank in ranks.items():
        lowest[column] = min(rank, lowest.get(column, rank))
    return {(row, column) for (row, column), rank in ranks.items() if rank == lowest[column]}


def _head(summary: Summary) -> str:
    return " / ".join(axis.replace("_", " ").capitalize() for axis in summary.study.rows)


def heading(axis: str, label: str) -> str:
    """A level as a heading says it: the number of clients with its word."""
    return f"{label} clients" if axis == "clients" and label.isdigit() else label


def all_grids(summary: Summary) -> list[Grid]:
    """All tables of a report, in their order."""
    grids = list(result_grids(summary))
    for value in summary.study.values:
        if summary.study.better.get(value, "higher") != "neither":
            grids += [
                g for g in (make(summary, value) for make in (rank_grid, margin_grid, pair_grid)) if g is not None
            ]
    chosen = settings_grid(summary)
    return grids if chosen is None else [*grids, chosen]
