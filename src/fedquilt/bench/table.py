"""The result of a bench as a table for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from fedquilt.bench.result import OURS, PLAIN_LOOP, Result, Row

HEADINGS = ("Epochs", "ms/round", "Best", "x FedAvg", "Plain loop", "Plain/ours", "Best/best")
HOW_TO_READ = (
    "Read the ratios, since all sides took turns in one process: 'x FedAvg' is a round in rounds of our FedAvg,\n"
    "'Plain/ours' how many of our rounds fit in one of the plain PyG loop; times are milliseconds, medians over turns."
)

BUSY = 1.25  # ratio of the median to the best turn; above it, other processes probably used the machine too


def busy_sentences(result: Result) -> list[str]:
    """Return a warning if other processes used the machine too; else an empty list."""
    times = result.busyness()
    warning = f"The machine was busy, medians are {times:.1f} times the best turns; trust Best/best, or measure again."
    return [warning] if times > BUSY else []


def bench_table(result: Result) -> Table:
    """Build a table with a row for each method on each case; a plain loop, if there is one, is in the same row."""
    about = result.about
    threads = "1 thread" if about["threads"] == 1 else f"{about['threads']} threads"
    title = f"{about['device_name']}, {threads}, torch {about['torch']}"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("Cell")
    table.add_column("Method")
    for heading in (*HEADINGS, "Peak MB") if result.memory else HEADINGS:
        table.add_column(heading, justify="right")
    plain = {(row.case, row.method): row for row in result.rows if row.side == PLAIN_LOOP}
    peaks = {(one.case, one.method): one.peak_mb for one in result.memory}
    ours = [row for row in result.rows if row.side == OURS]
    for position, row in enumerate(ours):
        first = position == 0 or ours[position - 1].case != row.case
        last = position + 1 == len(ours) or ours[position + 1].case != row.case
        beside = plain.get((row.case, row.method))
        table.add_row(
            Text(row.case if first else ""),
            Text(row.method),
            str(row.epochs),
            *_times(row, beside),
            *([_megabytes(peaks.get((row.case, row.method)))] if peaks else []),
            end_section=last,
        )
    return table


def _times(row: Row, plain: Row | None) -> list[str]:
    beside = ["", "", ""]
    if plain is not None and row.speedup is not None and row.speedup_best is not None:
        beside = [milliseconds(plain.ms), f"{row.speedup:.1f}x", f"{row.speedup_best:.1f}x"]
    return [milliseconds(row.ms), milliseconds(row.best_ms), f"{row.to_fedavg:.1f}x", *beside]


def milliseconds(value: float) -> str:
    """Format milliseconds with three significant digits; more are not reproducible."""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _megabytes(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
