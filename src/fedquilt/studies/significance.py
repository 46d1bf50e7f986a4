"""Significance of differences between rows of a study's table: Wilcoxon's test over columns, paired t-test over seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedquilt.reports.paired_test import ALPHA, wilcoxon_p
from fedquilt.studies.summary import Entry, Summary


@dataclass(frozen=True)
class Pair:
    """One row against another.

    Attributes:
        first, second: the rows.
        columns: how many columns have a number of both. wins, losses: how many where the first is better, or worse.
        difference: by how much the first is better, mean over these columns.
        wilcoxon: p of Wilcoxon's signed-rank test over the columns' means, two-sided; NaN for fewer than six columns.
        better_seeds, worse_seeds: how many columns where the first is better, or worse, with p < 0.05 in the paired t-test over
            seeds.
    """

    first: str
    second: str
    columns: int
    wins: int
    losses: int
    difference: float
    wilcoxon: float
    better_seeds: int
    worse_seeds: int


def pairs(summary: Summary, value: str) -> list[Pair]:
    """Every two rows that share a column, in the order of the table."""
    rows: dict[tuple[str, ...], dict[tuple[str, ...], Entry]] = {}
    for entry in summary.of(value):
        if not math.isnan(entry.mean) and entry.better != "neither":
            rows.setdefault(summary.row(entry.at), {})[summary.column(entry.at)] = entry
    names = list(rows)
    out = []
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            shared = [column for column in rows[first] if column in rows[second]]
            if shared:
                out.append(_pair(first, second, [(rows[first][c], rows[second][c]) for c in shared]))
    return out


def against(summary: Summary, value: str, reference: str) -> list[Pair]:
    """The reference row against every other row."""
    found = []
    for pair in pairs(summary, value):
        if pair.first == reference:
            found.append(pair)
        elif pair.second == reference:
            found.append(swapped(pair))
    return found


def swapped(pair: Pair) -> Pair:
    """The same pair with the second row first."""
    return Pair(
        pair.second,
        pair.first,
        pair.columns,
        pair.losses,
        pair.wins,
        -pair.difference,
        pair.wilcoxon,
        pair.worse_seeds,
        pair.better_seeds,
    )


def reference_row(summary: Summary, value: str) -> str | None:
    """The row that the others are compared with: the paper's own method, else the row with the best mean rank."""
    ranks = summary.mean_ranks(value)
    if not ranks:
        return None
    if summary.study.rows == ["method"]:
        own = [
            level.label for level in summary.study.axes["method"] if level.options.get("method") == summary.study.paper
        ]
        if own and (own[0],) in ranks:
            return own[0]
    best = min(ranks, key=lambda row: ranks[row])
    return " / ".join(best)


def _pair(first: tuple[str, ...], second: tuple[str, ...], entries: list[tuple[Entry, Entry]]) -> Pair:
    sign = 1.0 if entries[0][0].better == "higher" else -1.0
    ahead = np.array([sign * (a.mean - b.mean) for a, b in entries])
    by_seed = [_t_test(a, b) for a, b in entries]
    return Pair(
        first=" / ".join(first),
        second=" / ".join(second),
        columns=len(entries),
        wins=int((ahead > 0).sum()),
        losses=int((ahead < 0).sum()),
        difference=float(ahead.mean()),
        wilcoxon=wilcoxon_p(ahead),
        better_seeds=sum(sign * direction > 0 for direction in by_seed),
        worse_seeds=sum(sign * direction < 0 for direction in by_seed),
    )


def _t_test(first: Entry, second: Entry) -> int:
    """1 where the first is higher with p < 0.05 over the seeds that both have, -1 where it is lower, else 0."""
    from scipy.stats import ttest_rel

    seeds = [seed for seed in first.by_seed if seed in second.by_seed]
    differences = np.array([first.by_seed[seed] - second.by_seed[seed] for seed in seeds])
    if len(seeds) < 2 or not differences.any():
        return 0
    if np.ptp(differences) < 1e-12:  # the same in every seed
        return int(np.sign(differences[0]))
    p = ttest_rel([first.by_seed[s] for s in seeds], [second.by_seed[s] for s in seeds]).pvalue
    return int(np.sign(differences.mean())) if p < ALPHA else 0
