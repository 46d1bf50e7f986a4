"""Tables of results, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.common.printable import printable
from fedquilt.errors import FedquiltError
from fedquilt.reports.names import metric_name
from fedquilt.runs.failed_method import FAILED
from fedquilt.runs.result import RETRIED, ROUNDS_RUN

Result = Mapping[str, Any]
"""The content of a result.json."""

NOTE = "Note"  # the last column, where a method failed or was trained again
_SETTING = ("dataset", "partition", "clients", "metric")
_REST = ("Val", "Best round", "s/round", "MB up/round", "MB down/round")
_NO_TEST: Result = {"test_mean": None, "test_std": None}


def comparison_table(results: Sequence[Result]) -> Table:
    """One row for each result; the best test mean of each setting in bold.

    A setting is a dataset, a partition, a number of clients and a metric. What all results share is in the title,
    what differs gets a column. So do groups of clients that are reported separately. Where a method failed, or was trained
    again with other settings because it had diverged, a last column says so.
    """
    if not results:
        raise FedquiltError("There are no results to compare.")
    differing = [key for key in _SETTING if len({str(result[key]) for result in results}) > 1]
    shared = [key for key in _SETTING if key not in differing]
    table = Table(title=_title(results[0], shared), title_justify="left", title_style="bold")
    for key in differing:
        table.add_column(key.capitalize(), justify="right" if key == "clients" else "left")
    table.add_column("Method")
    groups = list(dict.fromkeys(name for result in results for name in _groups(result)))
    for heading in ("Test", *(f"Test {name}" for name in groups), *_REST):
        table.add_column(heading, justify="right")
    notes = [note_of(result) for result in results]
    if any(notes):
        table.add_column(NOTE, overflow="fold", min_width=24)
    best = _best_of_each_setting(results)
    for result, note in zip(results, notes, strict=True):
        is_best = len(results) > 1 and result["test_mean"] is not None
        is_best = is_best and result["test_mean"] == best[_setting(result)]
        seeds = result["seeds"]
        table.add_row(
            *(Text(str(result[key])) for key in differing),
            Text(str(result["method"]), "bold" if is_best else ""),
            Text("failed" if result.get(FAILED) else _test(result, len(seeds)), "bold" if is_best else ""),
            *(_test(_groups(result).get(name, _NO_TEST), len(seeds)) for name in groups),
            _number(result["val_mean"]),
            _number(_mean(seeds, "best_round"), 0),
            _seconds(_mean(seeds, "seconds_per_round")),
            _megabytes(seeds, "upload_bytes", result["rounds"]),
            _megabytes(seeds, "download_bytes", result["rounds"]),
            *([note] if any(notes) else []),
        )
    return table


def run_table(result: Result) -> Table:
    """One row for each seed, one for the mean, and one for each group of clients that is reported separately."""
    title = f"{result['method']}: {_title(result, _SETTING)}, {result['rounds']} rounds"
    table = Table(title=title, title_justify="left", title_style="bold")
    headings = ("Seed", "Best round", "Val", "Test", "Seconds", "s/round", "MB up/round", "MB down/round")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "Seed" else "right")
    seeds = result["seeds"]
    retried = any(seed.get(RETRIED) for seed in seeds)
    if retried:
        table.add_column("Retried", overflow="fold")
    for position, seed in enumerate(seeds):
        table.add_row(
            str(seed["seed"]),
            _number(seed["best_round"], 0),
            _number(seed["val"]),
            _number(seed["test"]),
            _number(seed["seconds"], 1),
            _seconds(seed["seconds_per_round"]),
            _megabytes([seed], "upload_bytes", result["rounds"]),
            _megabytes([seed], "download_bytes", result["rounds"]),
            *([seed.get(RETRIED) or ""] if retried else []),
            end_section=position == len(seeds) - 1,
        )
    table.add_row(
        Text("mean", "bold"),
        _number(_mean(seeds, "best_round"), 0),
        _number(result["val_mean"]),
        Text(_test(result, len(seeds)), "bold"),
        _number(_mean(seeds, "seconds"), 1),
        _seconds(_mean(seeds, "seconds_per_round")),
        _megabytes(seeds, "upload_bytes", result["rounds"]),
        _megabytes(seeds, "download_bytes", result["rounds"]),
        end_section=True,
    )
    for name, group in _groups(result).items():
        table.add_row(f"{name} ({group['clients']})", "", "", _test(group, len(seeds)))
    return table


def to_markdown(table: Table) -> str:
    """The table as Markdown, with its bold cells and the alignment of its columns."""
    columns = [[_cell(cell) for cell in column.cells] for column in table.columns]
    rows = [[_cell(column.header) for column in table.columns]]
    rows.append(["---:" if column.justify == "right" else "---" for column in table.columns])
    rows.extend(list(row) for row in zip(*columns, strict=True))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    if table.title:
        lines = [_cell(table.title), "", *lines]
    return "\n".join(lines) + "\n"


def _cell(cell: Any) -> str:
    # A line break or a bar would end the Markdown cell.
    text = printable(str(cell).replace("\n", " ")).replace("|", "\\|")
    return f"**{text}**" if isinstance(cell, Text) and cell.style == "bold" and text else text


def _title(result: Result, keys: Sequence[str]) -> str:
    texts = {key: str(result[key]) for key in keys}
    if "clients" in texts:
        texts["clients"] += " clients" if result["clients"] != 1 else " client"
    if "metric" in texts:
        texts["metric"] += " in %" if metric_name(result["metric"]).percent else ""
    return ", ".join(texts.values())


def _setting(result: Result) -> tuple[str, ...]:
    return tuple(str(result[key]) for key in _SETTING)


def _best_of_each_setting(results: Sequence[Result]) -> dict[tuple[str, ...], float]:
    best: dict[tuple[str, ...], float] = {}
    for result in results:
        if result["test_mean"] is not None:
            key = _setting(result)
            choose = max if metric_name(result["metric"]).higher_is_better else min
            best[key] = choose(best.get(key, result["test_mean"]), result["test_mean"])
    return best


def _mean(seeds: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = [seed[key] for seed in seeds if seed[key] is not None]
    return sum(values) / len(values) if values else None


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _groups(result: Result) -> Mapping[str, Result]:
    """The groups of clients that are reported separately, by name; empty where there are none."""
    return result.get("groups", {})


def _test(result: Result, seeds: int) -> str:
    """The test metric of a run or of a group of its clients, over seeds."""
    mean, std = result["test_mean"], result["test_std"]
    # With one seed there is no spread, and "± 0.00" would claim one.
    if mean is None or std is None or seeds < 2:
        return _number(mean)
    return f"{mean:.2f} ± {std:.2f}"


def _seconds(value: float | None) -> str:
    """Seconds with three significant digits, for milliseconds and minutes alike."""
    if value is None:
        return "-"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _megabytes(seeds: Sequence[Mapping[str, Any]], key: str, planned: int) -> str:
    """The bytes of some seeds as MB (10^6 bytes) a round that was done; `planned` rounds where that is not known."""
    known = [seed for seed in seeds if seed[key] is not None]
    rounds = sum(seed.get(ROUNDS_RUN) or planned for seed in known)
    return f"{sum(seed[key] for seed in known) / max(rounds, 1) / 1e6:.2f}" if known else "-"


def note_of(result: Result) -> str:
    """Why a method failed, or with which settings seeds were trained again that had diverged; "" where neither is so."""
    if result.get(FAILED):
        return str(result[FAILED])
    again: dict[str, list[str]] = {}
    for seed in result["seeds"]:
        if seed.get(RETRIED):
            again.setdefault(str(seed[RETRIED]), []).append(str(seed["seed"]))
    each = [f"{how} (seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)})" for how, seeds in again.items()]
    return f"retried: {'; '.join(each)}" if each else ""
