"""What methods cost beside what they gain: time and bytes of a round, in FedAvg's, and points above FedAvg."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedquilt.studies.scoreboard.ranking import RankedPlace, largest_block

REFERENCE = "fedavg"


@dataclass(frozen=True)
class Cost:
    """A method over the places where it and FedAvg were run.

    Attributes:
        method: its name. places: how many.
        gain: points above FedAvg, the mean over places.
        time: time of a round, in FedAvg's on the same graph and device: the geometric mean over places that have both; None
            where there are none.
        bytes: bytes that a client sends and is sent in a round, in FedAvg's: the geometric mean; 0 where it sends nothing.
        seconds, megabytes: the same as they are, medians; seconds are None where there is no time.
    """

    method: str
    places: int
    gain: float
    time: float | None
    bytes: float
    seconds: float | None
    megabytes: float


def method_costs(places: Sequence[RankedPlace]) -> list[Cost]:
    """The costs of methods over the same places, as many of both as possible among those whose bytes were counted."""
    measured = [
        replace(place, entries={name: e for name, e in place.entries.items() if "upload_mb" in place.costs[name]})
        for place in places
    ]
    names, shared = largest_block([place for place in measured if REFERENCE in place.entries], (REFERENCE,))
    out = []
    for name in names if shared else []:
        mine, theirs = ([place.costs[one] for place in shared] for one in (name, REFERENCE))
        gains = [_gain(place, name) for place in shared]
        sent = [_bytes(one) for one in mine]
        timed = [(m["seconds"], t["seconds"]) for m, t in zip(mine, theirs, strict=True) if _timed(m) and _timed(t)]
        out.append(
            Cost(
                method=name,
                places=len(shared),
                gain=statistics.fmean(gains),
                time=_ratio(*zip(*timed, strict=True)) if timed else None,
                bytes=_ratio(sent, [_bytes(t) for t in theirs]),
                seconds=statistics.median(m for m, _ in timed) if timed else None,
                megabytes=statistics.median(sent),
            )
        )
    return out


def cheapest_for_gain(costs: Sequence[Cost], axis: str) -> list[Cost]:
    """The methods that no other one beats in both: the Pareto front of gain against `time` or `bytes`, the cheapest first."""
    front: list[Cost] = []
    for cost in sorted(with_cost(costs, axis), key=lambda one: (getattr(one, axis), -one.gain)):
        if not front or cost.gain > front[-1].gain:
            front.append(cost)
    return front


def with_cost(costs: Sequence[Cost], axis: str) -> list[Cost]:
    """Those whose `time` or `bytes` is known."""
    return [cost for cost in costs if getattr(cost, axis) is not None]


def _timed(cost: dict[str, float]) -> bool:
    return cost.get("seconds", 0.0) > 0


def _gain(place: RankedPlace, name: str) -> float:
    one, other = place.entries[name], place.entries[REFERENCE]
    return (one.mean - other.mean) * (1 if one.better == "higher" else -1)


def _bytes(cost: dict[str, float]) -> float:
    return cost.get("upload_mb", 0.0) + cost.get("download_mb", 0.0)


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """The geometric mean of ratios; 0 where one of ours is 0."""
    pairs = [(a, b) for a, b in zip(mine, theirs, strict=True) if b > 0]
    if not pairs or any(a <= 0 for a, _ in pairs):
        return 0.0
    return math.exp(statistics.fmean(math.log(a / b) for a, b in pairs))
