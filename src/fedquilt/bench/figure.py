"""The figure of a bench: milliseconds per round of each method and of the plain loop, with a panel for each case."""

from __future__ import annotations

import math
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from fedquilt.bench.result import OURS, PLAIN_LOOP, Result, Row
from fedquilt.reports import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3  # panels in a row
# Marks differ in shape, fill and colour, so that they can be told apart in grey and by colour-blind readers.
_LOOKS: dict[str, dict[str, Any]] = {
    OURS: {"marker": "o", "color": style.PALETTE[0], "markersize": 6.5},
    PLAIN_LOOP: {"marker": "D", "color": style.PALETTE[1], "markersize": 6, "markerfacecolor": "white"},
}
_LINE: dict[str, Any] = {"color": style.PALETTE[1], "linestyle": "--", "linewidth": 0.9}


def bench_figure(result: Result, titles: dict[str, str]) -> Figure:
    """Draw medians over turns as marks and the middle half of the turns as lines; time is on a logarithmic scale.

    `titles` names the methods; the fastest is on top. The dashed line is the plain FedAvg loop.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    cases = list(dict.fromkeys(row.case for row in result.rows))
    pace = {row.method: [r.to_fedavg for r in result.ours().values() if r.method == row.method] for row in result.rows}
    order = sorted(pace, key=lambda method: median(pace[method]))
    columns = min(_COLUMNS, len(cases))
    lines = math.ceil(len(cases) / columns)
    with style.styled():
        figure = style.new_figure(1.3 + 2.4 * columns, 0.6 + lines * (0.6 + 0.2 * len(order)))
        grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for axes, case in zip(grid.flat, cases, strict=False):
            _draw(axes, [row for row in result.rows if row.case == case], order)
            axes.set_title(case)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(10))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.grid(axis="x")
            axes.set_yticks(range(len(order)), [titles[method] for method in order])
            axes.tick_params(axis="y", length=0)
            axes.tick_params(axis="x", labelbottom=True)
        grid.flat[0].set_ylim(len(order) - 0.5, -0.5)
        for axes in list(grid.flat)[len(cases) :]:
            axes.set_axis_off()
        figure.supxlabel("Milliseconds a round", fontsize=9)
        keys = [Line2D([], [], linestyle="none", label=side, **look) for side, look in _LOOKS.items()]
        keys.append(Line2D([], [], label="plain FedAvg loop", **_LINE))
        figure.legend(handles=keys, loc="outside upper left", ncols=3, columnspacing=1.4, handlelength=1.8)
        return figure


def _draw(axes: Axes, rows: list[Row], order: list[str]) -> None:
    for row in rows:
        height, look = order.index(row.method), _LOOKS[row.side]
        low, high = _middle_half(row.turns_ms)
        axes.plot([low, high], [height, height], color=look["color"], linewidth=1.4, solid_capstyle="butt")
        axes.plot(row.ms, height, linestyle="none", **look)
        if (row.side, row.method) == (PLAIN_LOOP, "fedavg"):
            axes.axvline(row.ms, zorder=1, **_LINE)


def _middle_half(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high
