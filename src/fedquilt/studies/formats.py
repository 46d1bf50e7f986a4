"""The formats of a study's report: terminal, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as RichTable
from rich.text import Text

from fedquilt.common.printable import printable
from fedquilt.studies.cells import format_settings
from fedquilt.studies.sentences import absences, provenance, verdict_sentences
from fedquilt.studies.summary import COSTS, EXCEEDED, MISSED, REACHED, Summary, mean_costs
from fedquilt.studies.tables import SIGNS, ReportTable, TableEntry, all_tables

STALE = "stale"  # the column of a CSV file with the number of stale seeds
_COLOURS = {EXCEEDED: "green", REACHED: "yellow", MISSED: "red"}


def for_terminal(table: ReportTable) -> RichTable:
    """A table for the terminal: the published number and the difference below ours, in colour."""
    out = RichTable(title=table.title, title_justify="left", title_style="bold")
    out.add_column(table.head)
    for column in table.columns:
        out.add_column(column, justify="right" if table.numbers else "left")
    for label, entries in table.rows:
        out.add_row(label, *map(_terminal_text, entries))
    return out


def _terminal_text(entry: TableEntry) -> Text:
    text = Text(entry.text, "bold" if entry.best else "")
    if entry.printed:
        text.append("\n" + entry.printed, "dim")
    if entry.verdict:
        text.append(f" {entry.difference} {SIGNS[entry.verdict]}", _COLOURS[entry.verdict])
    return text


def to_csv(summary: Summary) -> str:
    """The report as CSV: a line for each value at each place.

    It has our and the published number, the verdict, the rank, the settings, the cost, and how many of the seeds are stale.
    """
    axes = list(summary.study.axes)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    headings = ("value", "mean", "std", "seeds", "by_seed", "rank", "settings", "missing")
    printed = ("published_mean", "published_std", "difference", "verdict")
    writer.writerow((*axes, *headings, *printed, *COSTS, STALE))
    ranks = {value: summary.ranks(value) for value in summary.study.values}
    for entry in summary.entries:
        rank = ranks[entry.value].get((summary.row(entry.at), summary.column(entry.at)))
        ours = (
            *map(_plain, (entry.mean, entry.std, len(entry.by_seed))),
            " ".join(f"{value:.6g}" for value in entry.by_seed.values()),
            _plain(rank),
            format_settings(entry.settings),
            entry.missing,
        )
        printed_std = math.nan if entry.published is None else entry.published.std
        theirs = (*map(_plain, (entry.printed, printed_std, entry.difference)), entry.verdict)
        cost = mean_costs(entry.cells)
        costs = (_plain(cost.get(name)) for name in COSTS)
        stale = sum(cell.stale for cell in entry.cells.values())
        writer.writerow((*(entry.at[axis] for axis in axes), entry.value, *ours, *theirs, *costs, stale))
    return out.getvalue()


def _plain(x: float | None) -> str:
    if x is None or math.isnan(x):
        return ""
    return str(x) if isinstance(x, int) else f"{x:.6g}"


def to_markdown(summary: Summary, command: str, figures: Sequence[str] = ()) -> str:
    """The whole report as Markdown. `command` runs the study again; `figures` are paths relative to the report."""
    study = summary.study
    lines = [f"# {study.title}", "", study.lead, "", f"    {command}", ""]
    lines += [f"- {sentence}" for sentence in (*verdict_sentences(summary), *provenance(summary))] + [""]
    brackets = "; in brackets the published number and the difference" if summary.has_published else ""
    lines += [
        f"Ours: mean ± standard deviation over seeds, at the best validation round{brackets}. In bold: the best of a column.",
        "",
    ]
    lines += [line for figure in figures for line in (f"![{Path(figure).stem}]({figure})", "")]
    for table in all_tables(summary):
        lines += [f"## {table.title}", "", *_markdown_table(table), ""]
    remarks = [*study.notes, *absences(summary)]
    if remarks:
        lines += ["## Notes", "", *(f"- {remark}" for remark in remarks), ""]
    return "\n".join(lines)


def _markdown_table(table: ReportTable) -> list[str]:
    rule = "---:" if table.numbers else "---"
    rows = [[table.head, *table.columns], ["---", *(rule for _ in table.columns)]]
    rows += [[label, *map(_markdown_text, entries)] for label, entries in table.rows]
    return ["| " + " | ".join(printable(text).replace("|", "\\|") for text in row) + " |" for row in rows]


def _markdown_text(entry: TableEntry) -> str:
    text = f"**{entry.text}**" if entry.best else entry.text
    if entry.printed:
        text += f" ({entry.printed}" + (f", {entry.difference} {SIGNS[entry.verdict]}" if entry.verdict else "") + ")"
    return text


def to_latex(summary: Summary) -> str:
    """The tables with numbers as LaTeX with booktabs: our number, then the published one small and grey."""
    lines = ["% Needs \\usepackage{booktabs} and \\usepackage{xcolor}; written by fedquilt.", ""]
    for table in all_tables(summary):
        if table.numbers:
            lines += [*_latex_table(table, summary), ""]
    return "\n".join(lines)


def _latex_table(table: ReportTable, summary: Summary) -> Sequence[str]:
    head = " & ".join(_tex(name) for name in (table.head, *table.columns))
    body = [
        " & ".join([_tex(label), *(_latex_text(entry) for entry in entries)]) + r" \\" for label, entries in table.rows
    ]
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex(summary.study.title)}. {_tex(table.title)}.}}",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        head + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def _latex_text(entry: TableEntry) -> str:
    mean, plus, std = entry.text.partition(" ± ")
    text = rf"\textbf{{{_tex(mean)}}}" if entry.best else _tex(mean)
    if plus:
        text += rf" {{\scriptsize$\pm$ {_tex(std)}}}"
    if entry.printed:
        text += rf" {{\scriptsize\color{{gray}}({_tex(entry.printed)})}}"
    return text


_TEX = {
    "\\": r"\textbackslash{}",
    "–": "--",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "~": r"\textasciitilde{}",
    "^": r"\^{}",
}


def _tex(text: str) -> str:
    return re.sub(r"[\\–±<>~^&%$#_{}]", lambda found: _TEX.get(found[0], "\\" + found[0]), text)
