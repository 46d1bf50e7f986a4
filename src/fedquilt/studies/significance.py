"""Significance of differences between rows of a study's table: Wilcoxon's test over columns, paired t-test over seeds.

Where one row is compared with all others, p is corrected for the number of comparisons by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        seed_tests: the t-test of each column: 1 where the first is better, -1 where it is worse, 0 where they are equal, and p.
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
    seed_tests: tuple[tuple[int, float], ...] = ()


def holm(ps: Sequence[float]) -> list[float]:
    """p corrected for their number by Holm's method, in the same order; NaN, where nothing was tested, stays NaN.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none is smaller than one before it, nor above 1.
    """
    known = sorted((p, place) for place, p in enumerate(ps) if not math.isnan(p))
    out, highest = [math.nan] * len(ps), 0.0
    for number, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - number)))
        out[place] = highest
    return out


def corrected(found: Sequence[Pair]) -> list[Pair]:
    """Pairs with p of Wilcoxon's test corrected for their number, and the t-tests for that of all their columns."""
    wilcoxon = holm([pair.wilcoxon for pair in found])
    by_seed = iter(holm([p for pair in found for _, p in pair.seed_tests]))
    out = []
    for pair, p in zip(found, wilcoxon, strict=True):
        tests = tuple((direction, next(by_seed)) for direction, _ in pair.seed_tests)
        better, worse = _counts(tests)
        out.append(replace(pair, wilcoxon=p, seed_tests=tests, better_seeds=better, worse_seeds=worse))
    return out


def _counts(tests: Sequence[tuple[int, float]]) -> tuple[int, int]:
    """In how many columns the first is better, and worse."""
    told = [direction for direction, p in tests if p < ALPHA]
    return told.count(1), told.count(-1)


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
    """The reference row against every other row, corrected for the number of comparisons."""
    found = []
    for pair in pairs(summary, value):
        if pair.first == reference:
            found.append(pair)
        elif pair.second == reference:
            found.append(swapped(pair))
    return corrected(found)


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
        tuple((-direction, p) for direction, p in pair.seed_tests),
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
    sign = 1 if entries[0][0].better == "higher" else -1
    ahead = np.array([sign * (a.mean - b.mean) for a, b in entries])
    tests = tuple((sign * direction, p) for direction, p in (_t_test(a, b) for a, b in entries))
    better, worse = _counts(tests)
    return Pair(
        first=" / ".join(first),
        second=" / ".join(second),
        columns=len(entries),
        wins=int((ahead > 0).sum()),
        losses=int((ahead < 0).sum()),
        difference=float(ahead.mean()),
        wilcoxon=wilcoxon_p(ahead),
        better_seeds=better,
        worse_seeds=worse,
        seed_tests=tests,
    )


def _t_test(first: Entry, second: Entry) -> tuple[int, float]:
    """1 where the first is higher over the seeds that both have, -1 where it is lower, else 0; and p, NaN for one seed."""
    from scipy.stats import ttest_rel

    seeds = [seed for seed in first.by_seed if seed in second.by_seed]
    differences = np.array([first.by_seed[seed] - second.by_seed[seed] for seed in seeds])
    if len(seeds) < 2:
        return 0, math.nan
    if not differences.any():
        return 0, 1.0
    if np.ptp(differences) < 1e-12:  # the same in every seed
        return int(np.sign(differences[0])), 0.0
    p = ttest_rel([first.by_seed[s] for s in seeds], [second.by_seed[s] for s in seeds]).pvalue
    return int(np.sign(differences.mean())), float(p)
