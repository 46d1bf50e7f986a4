"""A study's report in the forms people need: for the terminal, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from fedquilt.studies.cells import Missing, written
from fedquilt.studies.compute_version import compute_version
from fedquilt.studies.grids import SIGNS, Grid, GridCell, all_grids
from fedquilt.studies.summary import EXCEEDED, MISSED, REACHED, Summary

_COLOURS = {EXCEEDED: "green", REACHED: "yellow", MISSED: "red"}
LEGEND = (
    f"Below ours: the published number and the difference; {SIGNS[EXCEEDED]} at least as good, "
    f"{SIGNS[REACHED]} within 1.0, {SIGNS[MISSED]} missed. In bold: the best of a column."
)


def for_terminal(grid: Grid) -> Table:
    """A grid as a table for the terminal: the published number and the difference below ours, in colour."""
    table = Table(title=grid.title, title_justify="left", title_style="bold")
    table.add_column(grid.head)
    for column in grid.columns:
        table.add_column(column, justify="right" if grid.numbers else "left")
    for label, cells in grid.rows:
        table.add_row(label, *(_terminal_cell(cell) for cell in cells))
    return table


def _terminal_cell(cell: GridCell) -> Text:
    text = Text(cell.text, "bold" if cell.best else "")
    if cell.printed:
        text.append("\n" + cell.printed, "dim")
    if cell.verdict:
        text.append(f" {cell.difference} {SIGNS[cell.verdict]}", _COLOURS[cell.verdict])
    return text


def verdict_sentences(summary: Summary) -> list[str]:
    """How many published numbers were exceeded, reached and missed, a sentence a value; and how far the study is."""
    out = []
    done, planned = summary.done
    if done < planned:
        out.append(f"{done} of {planned} runs are done.")
    if 0 < summary.seeds < summary.study.seeds:
        out.append(f"{summary.seeds} seeds; the paper has {summary.study.seeds}.")
    for value, heading in summary.study.values.items():
        counts = summary.verdicts(value)
        there = sum(counts.values())
        if there:
            facts = summary.study.better.get(value) == "neither"
            close = "within one percent" if facts else "within 1.0 below"
            best = "" if facts else f"{counts[EXCEEDED]} exceeded, "
            out.append(
                f"{heading}: of {there} published numbers {best}{counts[REACHED]} reached {close}, "
                f"{counts[MISSED]} missed, {counts['not run']} not run."
            )
    return out


def provenance(summary: Summary) -> list[str]:
    """Where the numbers come from: machines, versions, and whether by the code that is installed."""
    out = [f"{count} runs on {machine}." for machine, count in summary.machines.items()]
    codes = summary.codes
    if len(codes) > 1:
        parts = ", ".join(f"{count} by {code}" for code, count in codes.items())
        out.append(
            f"The runs were computed by different versions of the code ({parts}); run the study again to mend that."
        )
    elif codes and compute_version() not in codes:
        out.append(
            f"All runs were computed by another version of the code ({next(iter(codes))}) than the installed one."
        )
    elif codes:
        out.append(f"All runs were computed by the installed code ({next(iter(codes))}).")
    return out


def absences(summary: Summary) -> list[str]:
    """A sentence for each reason why something is not there: left out, or failed."""
    failed = [f"Failed: {label}: {why.rstrip('.')}." for label, why in summary.failed.items()]
    return left_out(summary.missing) + failed


def left_out(missing: Sequence[Missing]) -> list[str]:
    """A sentence for each reason why places cannot be run."""
    absent = [one for one in missing if one.method]
    names = ", ".join(dict.fromkeys(one.method for one in absent))
    out = [f"Left out, {len(absent)} places: methods that are not in fedquilt yet ({names})."] if absent else []
    others = Counter(one.why.rstrip(".") for one in missing if not one.method)
    return out + [f"Left out, {count} places: {why}." for why, count in others.items()]


def to_csv(summary: Summary) -> str:
    """A line for each value at each place: ours, published, difference, verdict, rank, settings."""
    axes = list(summary.study.axes)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    headings = ("value", "mean", "std", "seeds", "by_seed", "rank", "settings", "missing")
    writer.writerow((*axes, *headings, "published_mean", "published_std", "difference", "verdict"))
    ranks = {value: summary.ranks(value) for value in summary.study.values}
    for entry in summary.entries:
        rank = ranks[entry.value].get((summary.row(entry.at), summary.column(entry.at)))
        ours = (
            *map(_plain, (entry.mean, entry.std, len(entry.by_seed))),
            " ".join(f"{value:.6g}" for value in entry.by_seed.values()),
            _plain(rank),
            written(entry.settings),
            entry.missing,
        )
        printed_std = math.nan if entry.published is None else entry.published.std
        theirs = (*map(_plain, (entry.printed, printed_std, entry.difference)), entry.verdict)
        writer.writerow((*(entry.at[axis] for axis in axes), entry.value, *ours, *theirs))
    return out.getvalue()


def _plain(x: float | None) -> str:
    if x is None or math.isnan(x):
        return ""
    return str(x) if isinstance(x, int) else f"{x:.6g}"


def to_markdown(summary: Summary, command: str, figures: Sequence[str] = ()) -> str:
    """The whole report as Markdown; `figures` are where pictures lie beside it."""
    study = summary.study
    lines = [f"# {study.title}", "", f"The paper says: {study.claim}", "", f"    {command}", ""]
    lines += [f"- {sentence}" for sentence in (*verdict_sentences(summary), *provenance(summary))] + [""]
    lines += [
        "Ours: mean ± standard deviation over seeds, at the best validation round; in brackets the published number and the "
        "difference. In bold: the best of a column.",
        "",
    ]
    lines += [line for figure in figures for line in (f"![{Path(figure).stem}]({figure})", "")]
    for grid in all_grids(summary):
        lines += [f"## {grid.title}", "", *_markdown_table(grid), ""]
    remarks = [*study.notes, *absences(summary)]
    if remarks:
        lines += ["## Notes", "", *(f"- {remark}" for remark in remarks), ""]
    return "\n".join(lines)


def _markdown_table(grid: Grid) -> list[str]:
    rule = "---:" if grid.numbers else "---"
    rows = [[grid.head, *grid.columns], ["---", *(rule for _ in grid.columns)]]
    rows += [[label, *(_markdown_cell(cell) for cell in cells)] for label, cells in grid.rows]
    return ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows]


def _markdown_cell(cell: GridCell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    if cell.printed:
        text += f" ({cell.printed}" + (f", {cell.difference} {SIGNS[cell.verdict]}" if cell.verdict else "") + ")"
    return text


def to_latex(summary: Summary) -> str:
    """The tables as LaTeX, with booktabs: ours, the published number small and grey after it."""
    lines = ["% Needs \\usepackage{booktabs} and \\usepackage{xcolor}; written by fedquilt.", ""]
    for grid in all_grids(summary):
        if grid.numbers:
            lines += [*_latex_table(grid, summary), ""]
    return "\n".join(lines)


def _latex_table(grid: Grid, summary: Summary) -> Sequence[str]:
    head = " & ".join(_tex(name) for name in (grid.head, *grid.columns))
    body = [" & ".join([_tex(label), *(_latex_cell(cell) for cell in cells)]) + r" \\" for label, cells in grid.rows]
    return [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex(summary.study.title)}. {_tex(grid.title)}.}}",
        rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}",
        r"\toprule",
        head + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def _latex_cell(cell: GridCell) -> str:
    mean, plus, std = cell.text.partition(" ± ")
    text = rf"\textbf{{{_tex(mean)}}}" if cell.best else _tex(mean)
    if plus:
        text += rf" {{\scriptsize$\pm$ {_tex(std)}}}"
    if cell.printed:
        text += rf" {{\scriptsize\color{{gray}}({_tex(cell.printed)})}}"
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
