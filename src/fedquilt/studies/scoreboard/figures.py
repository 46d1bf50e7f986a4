"""The figures of the scoreboard: ranks with groups that cannot be told apart, cost beside gain, verdicts by table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedquilt.methods.base import methods
from fedquilt.reports import style
from fedquilt.studies.figures.layout import SMALL, TEXT, WIDTH
from fedquilt.studies.scoreboard.costs import Cost, cheapest_for_gain, with_cost
from fedquilt.studies.scoreboard.ranking import Ranking
from fedquilt.studies.scoreboard.verdicts import Verdicts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The papers' methods and ours have a colour each; all others are grey.
_COLOURS = dict(zip(("fedpub", "quilt", "fediih", "fedssa", "fedhero", "fedsheafhn"), style.PALETTE, strict=False))
_ROW = 0.19  # inches of a row
_VERDICTS = (("exceeded", "#009E73"), ("within 1.0", "#E69F00"), ("missed", "#D55E00"))
_LITTLE = 0.02  # of FedAvg's cost; what costs less is drawn there


def title_of(name: str) -> str:
    """A method's title, as tables show it."""
    found = methods().get(name)
    return name if found is None else found.title


def rank_figure(ranking: Ranking) -> Figure:
    """The critical-difference diagram, a row for each method: mean rank, its interval, and bars over those that are alike."""
    count = len(ranking.methods)
    figure = style.new_figure(WIDTH, 0.9 + _ROW * count)
    axes = figure.subplots()
    for row, name in enumerate(ranking.methods):
        colour = _COLOURS.get(name, style.GREY)
        axes.plot([ranking.low[row], ranking.high[row]], [row, row], color=colour, linewidth=2.4, alpha=0.35)
        axes.plot(ranking.means[row], row, marker="o", markersize=5, color=colour, linestyle="none")
    names = [f"{title_of(name)}  {mean:.1f}" for name, mean in zip(ranking.methods, ranking.means, strict=True)]
    axes.set_yticks(range(count), names, fontsize=SMALL)
    for label, name in zip(axes.get_yticklabels(), ranking.methods, strict=True):
        label.set_color(_COLOURS.get(name, style.INK))
    right = max(float(ranking.high.max()), count * 0.9)
    for number, (first, last) in enumerate(ranking.alike()):
        place = right + 0.4 + 0.35 * number
        axes.plot([place, place], [first - 0.2, last + 0.2], color=style.INK, linewidth=2.2, solid_capstyle="butt")
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_xlim(0.5, None)
    axes.grid(axis="x")
    axes.set_xlabel(
        f"Mean rank over {len(ranking.places)} places of {len(ranking.graphs)} graphs, with its 95 % interval.\n"
        "Methods beside one bar cannot be told apart (Wilcoxon's test, Holm's correction).",
        fontsize=TEXT,
    )
    return figure


def cost_figure(costs: Sequence[Cost], axis: str, heading: str) -> Figure:
    """Points above FedAvg against what a round costs, in FedAvg's, of methods of which that is known; the pale line joins
    those that nobody beats in both."""
    figure = style.new_figure(WIDTH, 4.4)
    axes = figure.subplots()
    costs = with_cost(costs, axis)
    floor = _floor(costs)
    points = [(cost, _x(cost, axis), max(cost.gain, floor)) for cost in costs]
    front = cheapest_for_gain([cost for cost in costs if cost.gain >= floor], axis)
    axes.plot([_x(c, axis) for c in front], [c.gain for c in front], color=style.PALE, linewidth=3, zorder=1)
    for cost, x, y in points:
        own = cost.method in _COLOURS
        look: Any = {"color": _COLOURS.get(cost.method, style.GREY), "zorder": 3 if own else 2, "linestyle": "none"}
        axes.plot(x, y, marker="o" if cost.gain >= floor else "v", markersize=7 if own else 4.5, **look)
    _log_axis(axes, [x for _, x, _ in points])
    axes.margins(y=0.07)
    axes.set_xlabel(heading, fontsize=TEXT)
    axes.set_ylabel("Points above FedAvg, mean over places", fontsize=TEXT)
    axes.tick_params(labelsize=SMALL)
    axes.grid()
    figure.draw_without_rendering()  # so that it is known where points are
    _name_points(axes, points, floor)
    return figure


def _floor(costs: Sequence[Cost]) -> float:
    """Gains further below are drawn here, with an arrow: one method that hardly learns would press all others together."""
    gains = sorted(cost.gain for cost in costs)
    low, high = gains[len(gains) // 4], gains[(3 * len(gains)) // 4]
    return low - 2.0 * max(high - low, 0.5)


def _x(cost: Cost, axis: str) -> float:
    return max(getattr(cost, axis), _LITTLE)


def _log_axis(axes: Axes, found: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set_xscale("log")
    axes.set_xlim(min(found) / 1.35, max(found) * 1.7)
    steps = [_LITTLE, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    axes.set_xticks([one for one in steps if min(found) / 1.3 <= one <= max(found) * 1.6])
    axes.xaxis.set_minor_locator(NullLocator())
    little = f"{_LITTLE:g} or less"
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: little if value <= _LITTLE * 1.01 else f"{value:g}"))


def _name_points(axes: Axes, points: Sequence[tuple[Cost, float, float]], floor: float) -> None:
    """Write each name beside its point, where it lies on no point and on no other name; the best first."""
    dots = 100 / 72  # pixels of a point at the figure's resolution
    where = {cost.method: axes.transData.transform((x, y)) for cost, x, y in points}
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in where.values()]
    for cost, x, y in sorted(points, key=lambda point: (point[0].method not in _COLOURS, -point[0].gain)):
        name = title_of(cost.method) + ("" if cost.gain >= floor else f" ({cost.gain:.1f})")
        wide, high = 0.6 * SMALL * len(name) * dots, 1.25 * SMALL * dots
        px, py = where[cost.method]
        best: tuple[float, float, float] | None = None
        for reach in (8, 20, 36, 56):
            for right, up in ((1, 0), (1, 0.8), (1, -0.8), (-1, 0), (-1, 0.8), (-1, -0.8), (0, 1), (0, -1)):
                left = px + right * reach - (wide if right < 0 else wide / 2 if right == 0 else 0)
                bottom = py + up * reach * 1.3 - high / 2
                box = (left, bottom, left + wide, bottom + high)
                hits = sum(_overlap(box, other) for other in taken)
                if best is None or hits < best[0]:
                    best = hits, left, bottom
            if best is not None and best[0] == 0:
                break
        assert best is not None
        _, left, bottom = best
        taken.append((left, bottom, left + wide, bottom + high))
        far = abs(bottom + high / 2 - py) > 14 or left - px > 20 or px - left - wide > 20
        axes.annotate(
            name,
            (x, y),
            ((left - px) / dots, (bottom + high / 2 - py) / dots),
            textcoords="offset points",
            fontsize=SMALL,
            va="center",
            color=_COLOURS.get(cost.method, style.INK),
            weight="bold" if cost.method in _COLOURS else "normal",
            arrowprops={"arrowstyle": "-", "color": style.GREY, "linewidth": 0.5} if far else None,
        )


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The area that two boxes (left, bottom, right, top) share."""
    wide, high = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, high)


def verdict_figure(verdicts: Sequence[Verdicts]) -> Figure:
    """A bar for each table: how many of the printed numbers that were run were exceeded, within 1.0, and missed."""
    figure = style.new_figure(WIDTH, 0.9 + _ROW * len(verdicts))
    axes = figure.subplots()
    for row, one in enumerate(verdicts):
        left = 0.0
        for count, (label, colour) in zip(one.counts, _VERDICTS, strict=False):
            share = 100 * count / one.run
            axes.barh(row, share, left=left, color=colour, height=0.72, label=label if row == 0 else "_again")
            if share > 4:
                axes.text(
                    left + share / 2, row, str(count), ha="center", va="center", fontsize=SMALL - 1, color="white"
                )
            left += share
    names = [f"{one.label}, {one.run} of {one.printed}" for one in verdicts]
    axes.set_yticks(range(len(verdicts)), names, fontsize=SMALL)
    axes.set_ylim(len(verdicts) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("Percent of the printed numbers that were run", fontsize=TEXT)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=SMALL)
    return figure


def all_figures(
    rankings: Sequence[Ranking], costs: Sequence[Cost], verdicts: Sequence[Verdicts]
) -> Iterator[tuple[str, Figure]]:
    """The figures that there is something for, by name."""
    with style.styled():
        if any(one.run for one in verdicts):
            yield "verdicts", verdict_figure([one for one in verdicts if one.run])
        for number, ranking in enumerate(rankings, start=1):
            yield f"ranks-{number}", rank_figure(ranking)
        if len([cost for cost in costs if not math.isnan(cost.gain)]) > 2:
            if len(with_cost(costs, "time")) > 1:
                yield "costs", cost_figure(costs, "time", "Time of a round, in FedAvg's at the same place")
            yield "bytes", cost_figure(costs, "bytes", "Bytes up and down of a round, in FedAvg's at the same place")
