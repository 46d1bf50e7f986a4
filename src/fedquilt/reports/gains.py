"""What each client gains by joining: a method's test metric less that of training alone, client by client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from fedquilt.common.files import write_text
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import TRAIN
from fedquilt.reports import style
from fedquilt.reports.names import method_title, metric_name
from fedquilt.reports.over_seeds import mean_and_std
from fedquilt.reports.read_run import StoredRun
from fedquilt.reports.tables import to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALONE, FLOOR = "local", "majority"
TABLE, FIGURE = "gains.md", "gains.png"


@dataclass(frozen=True)
class Gains:
    """What joining changes, for M clients over S seeds.

    Attributes:
        metric: the name of the metric.
        labels: [M] training nodes of each client, mean over seeds.
        alone: [S, M] the test metric of each client that trains alone, NaN where it has no test node.
        gains: by method, [S, M] its test metric less `alone`, seed by seed; positive is better, whatever the metric.
    """

    metric: str
    labels: np.ndarray
    alone: np.ndarray
    gains: dict[str, np.ndarray]

    def of_clients(self, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean gain of each client [M], and its standard error over the seeds (0 with one seed)."""
        return _mean_and_error(self.gains[method])

    def of_all(self, method: str) -> tuple[float, float]:
        """Mean gain over the clients, and its standard error over the seeds."""
        mean, error = _mean_and_error(np.nanmean(self.gains[method], axis=1)[:, None])
        return float(mean[0]), float(error[0])


def client_gains(runs: Sequence[StoredRun]) -> Gains:
    """The gains of all methods over `local`, from finished runs over the same clients and seeds; `majority` is left out."""
    by_method = {run.method: run for run in runs}
    if ALONE not in by_method:
        raise FedquiltError(f"Gains are measured from '{ALONE}', and these runs have none; add it to the methods.")
    base = by_method[ALONE]
    result = base.result
    if result is None:
        raise FedquiltError(f"No round in {base.folder} has been evaluated yet.")
    sign = 1.0 if metric_name(result["metric"]).higher_is_better else -1.0
    alone = _clients_test(base)
    gains = {}
    for method, run in by_method.items():
        if method in (ALONE, FLOOR):
            continue
        values = _clients_test(run)
        if values.shape != alone.shape:
            raise FedquiltError(
                f"{run.folder} has other clients or seeds than {base.folder}, so gains cannot be taken."
            )
        gains[method] = sign * (values - alone)
    return Gains(result["metric"], _training_nodes(base), alone, gains)


def gains_table(found: Gains) -> Table:
    """A row for each client: its training labels, its metric alone, and what each method adds."""
    unit = ", points" if metric_name(found.metric).percent else ""
    title = f"What each client gains over training alone (test {found.metric}{unit})"
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("Client", "Labels", "Alone", *map(method_title, found.gains)):
        table.add_column(heading, justify="left" if heading == "Client" else "right")
    alone = mean_and_std(found.alone)[0]
    columns = {method: found.of_clients(method) for method in found.gains}
    for client in range(len(found.labels)):
        table.add_row(
            str(client),
            f"{found.labels[client]:.0f}",
            _plain(alone[client]),
            *(_signed(mean[client], error[client], len(found.alone)) for mean, error in columns.values()),
            end_section=client == len(found.labels) - 1,
        )
    table.add_row(
        "all",
        f"{found.labels.sum():.0f}",
        _plain(float(np.nanmean(alone))),
        *(_signed(*found.of_all(method), len(found.alone)) for method in found.gains),
    )
    table.add_row("gain / lose", "", "", *(_counts(mean) for mean, _ in columns.values()))
    return table


def gains_figure(found: Gains) -> Figure:
    """A dot for each client and method: the mean gain, with its standard error over seeds; those below zero lose."""
    clients, methods = len(found.labels), list(found.gains)
    where = np.arange(clients)
    step = 0.7 / max(len(methods), 1)
    with style.styled():
        figure = style.new_figure(min(9.0, max(5.0, 1.6 + 0.56 * clients)), 3.2)
        axes = figure.add_subplot()
        for position, method in enumerate(methods):
            mean, error = found.of_clients(method)
            axes.errorbar(
                where + (position - (len(methods) - 1) / 2) * step,
                mean,
                error if len(found.alone) > 1 else None,
                fmt="o",
                markersize=4.5,
                elinewidth=0.9,
                color=style.colour(position),
                label=f"{method_title(method)} (mean {found.of_all(method)[0]:+.1f})",
                zorder=3,
            )
        axes.axhline(0, color=style.INK, linewidth=1.0, zorder=2)
        low, high = axes.get_ylim()
        axes.axhspan(min(low, -1.0), 0, color=style.PALE, alpha=0.45, linewidth=0, zorder=1)
        axes.set_ylim(min(low, -1.0), high)
        axes.text(clients - 0.55, min(low, -1.0) * 0.94, "worse off than alone", ha="right", va="bottom", fontsize=8)
        axes.set_xticks(where, [f"{client}\n{labels:.0f}" for client, labels in enumerate(found.labels)])
        axes.set_xlim(-0.6, clients - 0.4)
        axes.set_xlabel("Client, and how many labels it trains on")
        unit = " (points)" if metric_name(found.metric).percent else ""
        axes.set_ylabel(f"Gain in test {found.metric}{unit}")
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=4, columnspacing=1.4, handletextpad=0.3)
        return figure


def write_gains(runs: Sequence[StoredRun], folder: Path) -> Gains:
    """Write gains.md and gains.png to a folder, and return what they show."""
    found = client_gains(runs)
    write_text(folder / TABLE, to_markdown(gains_table(found)))
    style.save_figure(gains_figure(found), folder / FIGURE)
    return found


def _clients_test(run: StoredRun) -> np.ndarray:
    """The test metric by seed and client, [S, M], NaN where a client has none."""
    rows: list[list[Any]] = [seed.summary["clients_test"] for seed in run.seeds if seed.summary is not None]
    if len({len(row) for row in rows}) != 1:
        raise FedquiltError(
            f"The seeds of {run.folder} differ in their number of clients, so gains cannot be averaged."
        )
    return np.array([[np.nan if value is None else value for value in row] for row in rows], dtype=float)


def _training_nodes(run: StoredRun) -> np.ndarray:
    counts = []
    for seed in run.seeds:
        cut = seed.folder.load_arrays("split-and-partition")
        if cut is not None:
            owner = np.repeat(np.arange(len(cut["sizes"])), cut["sizes"])
            counts.append(np.bincount(owner[cut["split"] == TRAIN], minlength=len(cut["sizes"])))
    return np.mean(counts, axis=0)


def _mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis, and its standard error s / sqrt(S), with S - 1 in the variance; NaN left out."""
    mean, std = mean_and_std(values)
    seeds = np.isfinite(values).sum(0)
    return mean, np.where(seeds > 1, std / np.sqrt(np.maximum(seeds - 1, 1)), 0.0)


def _plain(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "-"


def _signed(mean: float, error: float, seeds: int) -> str:
    if not np.isfinite(mean):
        return "-"
    return f"{mean:+.1f}±{error:.1f}" if seeds > 1 else f"{mean:+.1f}"


def _counts(mean: np.ndarray) -> str:
    shown = np.round(mean, 1)  # what reads +0.0 is neither
    return f"{int((shown > 0).sum())} / {int((shown < 0).sum())}"
