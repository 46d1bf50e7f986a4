"""The headline of a comparison: which method is best, whether it can be told from the next, and whether it beats the floor.

Two methods are compared by their test metrics in pairs, one for each seed and client that both have: the same client with the
same nodes to train and to test on. Where Wilcoxon's signed-rank test over these pairs gives p >= 0.05, or there are fewer than
six pairs, the methods cannot be told apart. Clients of one seed share a model's history, so that pairs are not quite
independent: p is a little too small, and "cannot be told apart" errs on the side of calling a difference real.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedquilt.reports.names import MetricName, metric_name
from fedquilt.reports.paired_test import ALPHA, wilcoxon_p

# Methods that exchange nothing: what a client has without any federation. The first learns nothing either.
FLOOR = ("majority", "local")
_TEST = "Wilcoxon's signed-rank test"


@dataclass(frozen=True)
class Compared:
    """A method with a result: the content of result.json, and by seed each client's test metric at the best round."""

    result: Mapping[str, Any]
    tests: Mapping[int, Sequence[float | None]]

    @property
    def name(self) -> str:
        """The method's name."""
        return str(self.result["method"])

    @property
    def mean(self) -> float:
        """The mean test metric over seeds."""
        return float(self.result["test_mean"])


@dataclass(frozen=True)
class Difference:
    """By how much the first of two methods is better: the mean over `pairs` pairs of seed and client, and p."""

    mean: float
    pairs: int
    p: float

    @property
    def told_apart(self) -> bool:
        """Whether the difference is taken for real."""
        return self.p < ALPHA

    def words(self) -> str:
        """How it was tested."""
        pairs = f"{self.pairs} pair{'' if self.pairs == 1 else 's'} of seed and client"
        return f"{pairs} are too few for a test" if math.isnan(self.p) else f"{_TEST} over {pairs}: p = {self.p:.2g}"


def difference(first: Compared, second: Compared) -> Difference:
    """The first method against the second, where both have a test metric."""
    sign = 1.0 if metric_name(first.result["metric"]).higher_is_better else -1.0
    ahead = np.array([
        sign * (a - b)
        for seed in first.tests
        if len(first.tests[seed]) == len(second.tests.get(seed, ()))
        for a, b in zip(first.tests[seed], second.tests[seed], strict=True)
        if a is not None and b is not None
    ])  # fmt: skip
    mean = float(ahead.mean()) if len(ahead) else math.nan
    return Difference(mean, len(ahead), wilcoxon_p(ahead))


def verdict(compared: Sequence[Compared]) -> list[str]:
    """One or two sentences about methods on the same clients, splits and seeds; none where fewer than two have a result."""
    known = [one for one in compared if one.result["test_mean"] is not None]
    if len(known) < 2 or len({_setting(one.result) for one in known}) > 1:
        return []
    metric = metric_name(known[0].result["metric"])
    ranked = sorted(known, key=lambda one: one.mean, reverse=metric.higher_is_better)
    found = difference(ranked[0], ranked[1])
    best, second = (f"{one.name} ({score(one.result, metric)})" for one in ranked[:2])
    if math.isnan(found.p):
        sentences = [f"Best are {best} and {second}, but {found.words()}, so that they cannot be told apart."]
    elif found.told_apart:
        sentences = [f"{best} has the best test {metric.title}; next is {second}. They differ ({found.words()})."]
    else:
        sentences = [f"The best two cannot be told apart: {best} and {second} ({found.words()})."]
    return [*sentences, *_floor(ranked)]


def score(result: Mapping[str, Any], metric: MetricName) -> str:
    """The test metric over seeds, such as "95.12 ± 0.31 %"; the deviation where there are several seeds."""
    mean, deviation = result["test_mean"], result["test_std"]
    if mean is None:
        return "no value yet"
    spread = f"\u00a0±\u00a0{deviation:.2f}" if len(result["seeds"]) > 1 and deviation is not None else ""
    return f"{mean:.2f}{spread}{metric.unit}"


def _floor(ranked: Sequence[Compared]) -> list[str]:
    """A sentence where no method is better than what clients have without federation."""
    floors = [one for one in ranked if one.name in FLOOR]
    others = [one for one in ranked if one.name not in FLOOR]
    if not floors or not others:
        return []
    floor, best = floors[0], others[0]
    found = difference(best, floor)
    if found.told_apart and found.mean > 0:
        return []
    what = "learns nothing" if floor.name == FLOOR[0] else "exchanges nothing"
    if math.isnan(found.p) and found.mean > 0:
        return [f"Whether {best.name} beats the floor, {floor.name}, which {what}, is not known: {found.words()}."]
    return [
        f"No method beats the floor, {floor.name}, which {what}: the best of the others is {best.name} ({found.words()})."
    ]


def _setting(result: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(result[key]) for key in ("dataset", "partition", "clients", "metric"))
