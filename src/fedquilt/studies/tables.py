"""The tables of a study's report, as text: the same for the terminal, Markdown, LaTeX and the HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from fedquilt.reports.names import EXCEEDED_SIGN, MISSED_SIGN, REACHED_SIGN
from fedquilt.studies.cells import format_settings
from fedquilt.studies.significance import against, reference_row
from fedquilt.studies.summary import EXCEEDED, MISSED, REACHED, Entry, Ranks, Summary

Best = set[tuple[tuple[str, ...], tuple[str, ...]]]
STALE_SIGN = "†"  # at a number of which another version of the computation finished a run
SIGNS = {EXCEEDED: EXCEEDED_SIGN, REACHED: REACHED_SIGN, MISSED: MISSED_SIGN}
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
class TableEntry:
    """One entry of a table.

    Attributes:
        text: our number. printed: the published one. difference: ours minus published.
        verdict: exceeded, reached, missed, or empty. best: whether ours is the best of its column.
        note: a remark on the published number, or why ours is missing.
    """

    text: str
    printed: str = ""
    difference: str = ""
    verdict: str = ""
    best: bool = False
    note: str = ""


@dataclass(frozen=True)
class ReportTable:
    """A table.

    Attributes:
        title: above the table.
        head: the heading of the first column, which has the labels of the rows. columns: the headings of the others.
        rows: the label of each row and its entries.
        numbers: whether the entries are numbers, which are aligned to the right.
    """

    title: str
    head: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[TableEntry, ...]], ...]
    numbers: bool = True


def result_tables(summary: Summary) -> Iterator[ReportTable]:
    """Our numbers beside the published ones: a table for each value and each place of the axes other than rows and last column.

    Columns of several axes would not fit on a page. Tables without a number of ours are left out.
    """
    study = summary.study
    parts = [*study.tables, *study.columns[:-1]]
    for value, heading in study.values.items():
        best = _best(summary.ranks(value))
        for part in product(*([level.label for level in study.axes[axis]] for axis in parts)):
            fixed = dict(zip(parts, part, strict=True))
            entries = [e for e in summary.of(value) if all(e.at[axis] == label for axis, label in fixed.items())]
            if any(entry.by_seed for entry in entries):
                yield _result_table(summary, entries, ", ".join([*part, heading]), best)


def _result_table(summary: Summary, entries: Sequence[Entry], title: str, best: Best) -> ReportTable:
    last = summary.study.columns[-1]
    here = {(summary.row(e.at), e.at[last]): e for e in entries}
    columns = [level.label for level in summary.study.axes[last] if any(e.at[last] == level.label for e in entries)]
    rows = []
    for row in dict.fromkeys(summary.row(e.at) for e in entries):
        texts = []
        for column in columns:
            entry = here.get((row, column))
            texts.append(_table_entry(entry, entry is not None and (row, summary.column(entry.at)) in best))
        rows.append((" / ".join(row), tuple(texts)))
    return ReportTable(title, _head(summary), tuple(heading(last, label) for label in columns), tuple(rows))


def rank_table(summary: Summary, value: str) -> ReportTable | None:
    """For each row its mean rank, in how many columns it is best, and its verdicts; None where there are no ranks.

    There are no verdicts in a study without published numbers.
    """
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
                    TableEntry(f"{rank:.2f}", best=rank == lowest),
                    TableEntry(str(best)),
                    *(TableEntry(str(count) if printed else "–") for count in counts if summary.has_published),
                ),
            )
        )
    columns = ("Mean rank", "Best in", *(("Exceeded", "Within 1.0", "Missed") if summary.has_published else ()))
    return ReportTable(f"Ranks, {summary.study.values[value]}", _head(summary), columns, tuple(rows))


def pair_table(summary: Summary, value: str) -> ReportTable | None:
    """The reference row against each other row; None where there are no two rows to compare."""
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
                    TableEntry(f"{pair.difference:+.2f}"),
                    TableEntry(f"{pair.wins} / {pair.losses} of {pair.columns}"),
                    TableEntry(p, best=not math.isnan(pair.wilcoxon) and pair.wilcoxon < 0.05),
                    TableEntry(f"{pair.better_seeds} / {pair.worse_seeds}"),
                ),
            )
        )
    columns = (
        "Mean difference",
        "Wins / losses",
        "Wilcoxon p over cells, Holm",
        "Cells better / worse, paired t over seeds, Holm (p < 0.05)",
    )
    return (
        ReportTable(f"Who can be told apart, {summary.study.values[value]}", "Pair", columns, tuple(rows))
        if rows
        else None
    )


def margin_table(summary: Summary, value: str) -> ReportTable | None:
    """How far each method is above Local on the same splits, ours beside the printed margin; None without a row of Local.

    Margins are means over columns. The second one is over the columns where the paper prints a margin; it and the printed one
    are left out of a study without published numbers.
    """
    study = summary.study
    local = [level.label for level in study.axes.get("method", []) if level.options.get("method") == "local"]
    if study.rows != ["method"] or not local or study.better.get(value, "higher") != "higher":
        return None
    base = {summary.column(e.at): e for e in summary.of(value) if e.at["method"] == local[0]}
    shown = 3 if summary.has_published else 1
    rows = []
    for label in dict.fromkeys(e.at["method"] for e in summary.of(value)):
        entries = [e for e in summary.of(value) if e.at["method"] == label and summary.column(e.at) in base]
        mine = [(e, base[summary.column(e.at)]) for e in entries]
        ours = _mean(e.mean - b.mean for e, b in mine)
        printed = _mean(e.printed - b.printed for e, b in mine)
        both = _mean(e.mean - b.mean for e, b in mine if not math.isnan(e.printed - b.printed))
        if label != local[0] and not math.isnan(ours):
            rows.append((label, tuple(TableEntry(_signed(margin)) for margin in (ours, both, printed)[:shown])))
    columns = ("Ours", "Ours, where printed", "Printed")[:shown]
    return (
        ReportTable(f"Margin over {local[0]}, {study.values[value]}", "Method", columns, tuple(rows)) if rows else None
    )


def settings_table(summary: Summary) -> ReportTable | None:
    """The settings that validation selected at each place; None where there was no choice."""
    study = summary.study
    entries = [e for e in summary.of(next(iter(study.values))) if e.choices > 1 and e.by_seed]
    if not entries:
        return None
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for entry in entries:
        place = " ".join(summary.column(entry.at))
        chosen = format_settings(entry.settings) or "defaults"
        rows.setdefault(summary.row(entry.at), {}).setdefault(chosen, []).append(place)
    return ReportTable(
        "What validation chose",
        _head(summary),
        ("Settings: where",),
        tuple(
            (" / ".join(row), (TableEntry("; ".join(f"{s}: {', '.join(places)}" for s, places in by.items())),))
            for row, by in rows.items()
        ),
        numbers=False,
    )


def _table_entry(entry: Entry | None, best: bool) -> TableEntry:
    if entry is None:
        return TableEntry("")
    printed = "" if math.isnan(entry.printed) else number(entry.value, entry.printed)
    note = entry.published.note if entry.published is not None else ""
    if not entry.by_seed:
        return TableEntry("–", printed, note=entry.missing or note)
    text = number(entry.value, entry.mean)
    if not math.isnan(entry.std):
        text += f" ± {number(entry.value, entry.std)}"
    if len(entry.by_seed) < entry.planned:
        text += f" ({len(entry.by_seed)} of {entry.planned})"
    if entry.stale:
        text += STALE_SIGN
    difference = "" if math.isnan(entry.difference) else _signed(entry.difference, entry.value)
    return TableEntry(text, printed, difference, entry.verdict, best, note)


def number(value: str, x: float) -> str:
    """A number of a value as text, with as many decimals as the value has."""
    digits = _DIGITS.get(value, 2)
    return f"{x:,.{digits}f}"


def _signed(x: float, value: str = "test") -> str:
    return "–" if math.isnan(x) else f"{x:+,.{_DIGITS.get(value, 2)}f}"


def _mean(values: Iterator[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _best(ranks: Ranks) -> Best:
    """The rows and columns with the best rank of their column; several rows may be equal."""
    lowest: dict[tuple[str, ...], float] = {}
    for (_, column), rank in ranks.items():
        lowest[column] = min(rank, lowest.get(column, rank))
    return {(row, column) for (row, column), rank in ranks.items() if rank == lowest[column]}


def _head(summary: Summary) -> str:
    return " / ".join(axis.replace("_", " ").capitalize() for axis in summary.study.rows)


def heading(axis: str, label: str) -> str:
    """The label of a level as a heading; a number of clients gets the word."""
    return f"{label} clients" if axis == "clients" and label.isdigit() else label


def all_tables(summary: Summary) -> list[ReportTable]:
    """All tables of a report, in their order."""
    found: list[ReportTable | None] = list(result_tables(summary))
    for value in summary.study.values:
        if summary.study.better.get(value, "higher") != "neither":
            found += [make(summary, value) for make in (rank_table, margin_table, pair_table)]
    return [table for table in (*found, settings_table(summary)) if table is not None]
