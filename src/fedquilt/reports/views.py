"""What each client's graph is good for: the weights of a method's views, after the last round and over the rounds.

A method with several views of a graph (Quilt) has the finding `views` [M, V], each client's final mixture, and records the
weights by everyone's votes in every round as the diagnostics `view_<name>`. The views' names are the run's setting `views`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.reports import style
from fedquilt.reports.figures import shortened_name
from fedquilt.reports.read_run import Record, StoredRun, StoredSeed
from fedquilt.runs.result import CLIENT_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

VIEWS = "views"  # the finding, and the setting with the names
_OF_ROUND = "view_"  # how the diagnostics of the views begin
_NOTICED = 0.005  # smaller weights are left out of a sentence
_MAX_LABELS = 30  # clients with a label each
_MAX_GAPS = 60  # clients whose bars have gaps between them


@dataclass(frozen=True, eq=False)
class ViewWeights:
    """The weights of the views in one seed of a run.

    Attributes:
        names: of the V views.
        clients: [M, V] each client's mixture after the last round; a row that is not finite is not known.
        client_names: those of the clients, where they have names.
        rounds: [R] the rounds whose weights are known.
        by_round: [R, V] the weights by everyone's average votes after each of them.
        last: the last round; best: the round of the results.
    """

    names: tuple[str, ...]
    clients: np.ndarray
    client_names: tuple[str, ...]
    rounds: np.ndarray
    by_round: np.ndarray
    last: int | None
    best: int | None

    @property
    def mean(self) -> np.ndarray:
        """[V] the mean over clients whose mixture is known."""
        return self.known.mean(0)

    @property
    def known(self) -> np.ndarray:
        """The clients' mixtures without those that are not known."""
        return self.clients[np.isfinite(self.clients).all(1)]

    @property
    def aside(self) -> str:
        """Of which round the results are, where that is not the last one, of which the mixtures are; else nothing."""
        other = self.best is not None and self.last is not None and self.best != self.last
        return f"the results are of round {self.best}" if other else ""


def read_views(run: StoredRun, seed: StoredSeed, findings: Mapping[str, np.ndarray] | None) -> ViewWeights | None:
    """The weights of the views in a seed with these findings; None where it has none, as an earlier version of Quilt."""
    clients = None if findings is None else findings.get(VIEWS)
    if clients is None or clients.ndim != 2 or not np.isfinite(clients).all(1).any():
        return None
    names = _names(run.config, clients.shape[1])
    rounds, by_round = _by_round(seed.records, names)
    summary = seed.summary or {}
    called = summary.get(CLIENT_NAMES)
    return ViewWeights(
        names=names,
        clients=clients.astype(np.float64),
        client_names=tuple(map(str, called)) if isinstance(called, list) and len(called) == len(clients) else (),
        rounds=rounds,
        by_round=by_round,
        last=seed.records[-1]["round"] if seed.records else None,
        best=summary.get("best_round"),
    )


def views_sentence(found: ViewWeights, of: str = "") -> str:
    """The mean weights, the largest first, and at how many clients each view leads, where that is not always the same one.

    `of` says of what the weights are, such as "of seed 0".
    """
    mean, count = found.mean, len(found.known)
    weights = [f"{found.names[view]} {mean[view]:.2f}" for view in np.argsort(-mean, kind="stable")]
    noticed = weights[: max(1, int((mean >= _NOTICED).sum()))]
    leads = np.bincount(found.known.argmax(1), minlength=len(mean))
    leaders = [view for view in np.argsort(-leads, kind="stable") if leads[view]]
    first, *others = leaders
    said = [f"Views{of and ' '}{of}: {', '.join(noticed)} on average after the last round"]
    said[0] += f" ({found.aside})" if found.aside else ""
    if others:
        rest = "".join(f", {found.names[view]} at {leads[view]}" for view in others)
        said.append(f"{found.names[first]} leads at {leads[first]} of {count} clients{rest}")
    return "; ".join(said) + "."


def views_figure(runs: Sequence[tuple[str, ViewWeights]], title: str = "") -> Figure:
    """A stacked bar for each client, and the weights over the rounds; two runs side by side have their names above."""
    from matplotlib.patches import Patch

    names = list(dict.fromkeys(name for _, found in runs for name in found.names))
    colours = dict(zip(names, style.class_colours(len(names)), strict=True))
    deep = max(len(found.clients) for _, found in runs)
    with style.styled():
        figure = style.new_figure(6.8 if len(runs) == 1 else 5.4 * len(runs), 1.2 + min(5.0, max(1.9, 0.19 * deep)))
        for half, (label, found) in zip(figure.subfigures(1, len(runs), squeeze=False)[0], runs, strict=True):
            _draw_views(half, found, colours)
            half.suptitle(title if len(runs) == 1 else textwrap.fill(label, 60), fontsize=10, fontweight="bold")
        if len(runs) > 1 and title:
            figure.suptitle(title, fontsize=10, fontweight="bold")
        keys = [Patch(color=colours[name], label=name) for name in names]
        figure.legend(handles=keys, loc="outside lower right", ncols=6, handlelength=1.0, handleheight=1.0)
        return figure


def _names(config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The names of so many views by the run's settings, defaults included; their numbers where these do not fit."""
    settings = (config.get("resolved") or {}).get("settings") or config.get("settings") or {}
    names = [name.strip() for name in str(settings.get(VIEWS, "")).split(",")]
    return tuple(names) if len(names) == count and all(names) else tuple(str(view + 1) for view in range(count))


def _by_round(records: Sequence[Record], names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The rounds that recorded a weight for every view [R], and these weights [R, V]."""
    rows = {}
    for record in records:
        known = record.get("diagnostics") or {}
        weights = [known.get(_OF_ROUND + name) for name in names]
        if all(weight is not None and np.isfinite(weight) for weight in weights):
            rows[int(record["round"])] = weights
    return np.array(list(rows), dtype=int), np.array(list(rows.values()), dtype=float).reshape(-1, len(names))


def _draw_views(half: Figure | SubFigure, found: ViewWeights, colours: Mapping[str, Any]) -> None:
    """The bars of a run's clients, and its rounds where more than one is recorded."""
    if len(found.rounds) > 1:
        bars, rounds = half.subplots(1, 2)
        _draw_rounds(rounds, found, colours)
    else:
        bars = half.subplots()
    _draw_bars(bars, found, colours)


def _draw_bars(axes: Axes, found: ViewWeights, colours: Mapping[str, Any]) -> None:
    """A horizontal bar for each client, the first on top."""
    from matplotlib.ticker import MaxNLocator

    weights = np.where(np.isfinite(found.clients).all(1, keepdims=True), found.clients, 0.0)
    where, gaps = np.arange(len(weights)), len(weights) <= _MAX_GAPS
    left = np.zeros(len(weights))
    for view, name in enumerate(found.names):
        look: Any = {"color": colours[name], "edgecolor": "white", "linewidth": 0.5 if gaps else 0}
        axes.barh(where, weights[:, view], left=left, height=0.8 if gaps else 1.0, **look)
        left = left + weights[:, view]
    caption = "\n".join(
        part for part in ("Each client, after the last round", found.aside and f"({found.aside})") if part
    )
    axes.set_title(caption, fontsize=8.5, fontweight="normal")
    axes.set_xlabel("Weight")
    axes.set_ylabel("" if found.client_names else "Client")
    axes.set_xlim(0, 1)
    axes.set_ylim(len(weights) - 0.4, -0.6)
    if len(weights) > _MAX_LABELS:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, steps=(1, 2, 5, 10)))
    else:
        axes.set_yticks(where, [shortened_name(name, 14) for name in found.client_names] or None)
    axes.tick_params(axis="y", length=0)


def _draw_rounds(axes: Axes, found: ViewWeights, colours: Mapping[str, Any]) -> None:
    """The weights by everyone's votes as areas on each other, and where the best round is."""
    from matplotlib.ticker import MaxNLocator

    axes.stackplot(found.rounds, found.by_round.T, colors=[colours[name] for name in found.names], linewidth=0)
    if found.best is not None:
        axes.axvline(found.best, color=style.INK, linewidth=1.0, linestyle="--")
        middle = found.rounds[[0, -1]].mean()
        axes.annotate(
            "best round",
            (found.best, 1.0),
            xytext=(3 if found.best <= middle else -3, 2),
            textcoords="offset points",
            ha="left" if found.best <= middle else "right",
            fontsize=7.5,
        )
    axes.set_title("By everyone's votes, each round", fontsize=8.5, fontweight="normal", pad=14)
    axes.set_xlabel("Round")
    axes.set_xlim(found.rounds[0], found.rounds[-1])
    axes.set_ylim(0, 1)
    axes.set_ylabel("Weight")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=(1, 2, 5, 10)))
