"""The figure of a search: validation metric by trial."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from fedquilt.reports import style
from fedquilt.reports.names import metric_name
from fedquilt.tuning.outcome import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_history(trials: Sequence[Trial], metric: str, title: str, path: Path) -> None:
    """Write `history_figure` to the file `path`."""
    style.save_figure(history_figure(trials, metric, title), path)


def history_figure(trials: Sequence[Trial], metric: str, title: str) -> Figure:
    """Draw each finished trial's validation metric, the best so far and the defaults'; ticks mark trials that ended early."""
    from matplotlib.ticker import MaxNLocator

    done = [(trial.number, trial.val) for trial in trials if trial.val is not None]
    ended = [trial.number for trial in trials if trial.val is None]
    with style.styled():
        figure = style.new_figure(5.0, 3.0)
        axes = figure.add_subplot()
        numbers, values = zip(*done, strict=True)
        axes.scatter(numbers, values, s=16, color=style.GREY, label="a trial", zorder=3)
        best = list(accumulate(values, max if metric_name(metric).higher_is_better else min))
        axes.step(
            [*numbers, trials[-1].number], [*best, best[-1]], where="post", color=style.colour(0), label="best so far"
        )
        if trials[0].val is not None:
            axes.axhline(
                trials[0].val, color=style.colour(1), linewidth=0.9, linestyle=style.DASHES[1], label="defaults"
            )
        if ended:
            axes.plot(
                ended,
                [0.02] * len(ended),
                linestyle="",
                marker="|",
                color=style.INK,
                transform=axes.get_xaxis_transform(),
                label="ended early",
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        axes.set_xlabel("Trial")
        axes.set_ylabel(f"{metric_name(metric).label}, validation")
        axes.set_title(title)
        axes.legend(loc="best")
        return figure
