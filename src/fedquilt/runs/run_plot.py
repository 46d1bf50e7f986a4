"""The picture of a run in a script or a notebook: its metric over the rounds, and each client's at the best round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.runs.frames import Records, client_rows
from fedquilt.tasks.base import find_metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_VAL, _TEST = "#56B4E9", "#0072B2"


def run_figure(result: Mapping[str, Any], records: Records) -> Figure:
    """Two panels: validation and test against the round, a line a seed; and the mean over seeds of each client's test metric.

    Made without pyplot: a notebook shows it, and `figure.savefig("run.png")` writes it, with no display needed.
    """
    from matplotlib.figure import Figure

    clients = client_rows(result, records)
    if not clients:
        raise FedquiltError("The run has no evaluated round, so there is nothing to plot.")
    metric = find_metric(str(result["metric"]))
    label = f"{metric.title} (%)" if metric.scale == 100.0 else metric.title
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_rounds(left, records)
    _draw_clients(right, clients)
    for axes in (left, right):
        axes.set_ylabel(label)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{result['method']} on {result['dataset']}, {result['clients']} clients")
    return figure


def _draw_rounds(axes: Axes, records: Records) -> None:
    for number, rounds in enumerate(records.values()):
        evaluated = [record for record in rounds if "test" in record]
        for name, colour in (("val", _VAL), ("test", _TEST)):
            values = [np.nan if record[name] is None else record[name] for record in evaluated]
            shown = ("validation" if name == "val" else "test") if number == 0 else "_again"
            axes.plot([record["round"] for record in evaluated], values, color=colour, linewidth=1.4, label=shown)
    axes.set_xlabel("Round")
    axes.legend(frameon=False)


def _draw_clients(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    by_client: dict[int, list[float]] = {}
    for row in rows:
        by_client.setdefault(row["client"], []).append(np.nan if row["test"] is None else row["test"])
    means = [float(np.nanmean(tests)) if not np.isnan(tests).all() else np.nan for tests in by_client.values()]
    axes.bar(list(by_client), means, color=_TEST)
    axes.set_xlabel("Client (test at the best round)")
