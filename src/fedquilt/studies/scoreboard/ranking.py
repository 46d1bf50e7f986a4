"""Ranks of methods over all places: their means with intervals, and who can be told apart.

A place is a graph, a partition and a number of clients of a study that tunes all methods alike. Studies that run the same there
count once. Ranks are among the methods that all counted places have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from fedquilt.methods.base import methods
from fedquilt.reports.paired_test import ALPHA, wilcoxon_p
from fedquilt.studies.scoreboard.results import Place, StudyResult
from fedquilt.studies.significance import holm
from fedquilt.studies.spec import Coordinates, Study
from fedquilt.studies.summary import Entry

VALUE = "test"
DRAWS = 2000  # of the bootstrap
FEWEST_GRAPHS = 3  # with fewer graphs, places are drawn instead
_CORE = ("local", "fedavg", "fedpub", "fedsheafhn", "fedhero", "fediih", "fedssa", "quilt")
_LEFT_OUT = ("majority", "centralised")  # no method of a federation: the floor, and the ceiling


@dataclass(frozen=True)
class RankedPlace:
    """One place with the entries of the methods there.

    Attributes:
        graph: the dataset. label: what it is, in words.
        entries: by method. costs: by method, what it cost there.
        fresh: whether the study reports seeds that took no part in choosing settings (`Study.seed_list`).
    """

    graph: str
    label: str
    entries: dict[str, Entry]
    costs: dict[str, dict[str, float]]
    fresh: bool = False


@dataclass(frozen=True)
class Ranking:
    """The ranks of methods over places that all of them have.

    Attributes:
        methods: the best mean rank first.
        places: the places, P of them.
        ranks: [P, methods] in the order of both; 1 is the best, and equals share their mean.
        low, high: the 95 % interval of each mean rank.
        p: by pair of methods, p of Wilcoxon's test over places, corrected by Holm for the number of pairs.
        fewer: by method that was left out, at how many places it has results.
    """

    methods: tuple[str, ...]
    places: tuple[RankedPlace, ...]
    ranks: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: dict[frozenset[str], float]
    fewer: dict[str, int]

    @property
    def means(self) -> np.ndarray:
        """The mean rank of each method."""
        return self.ranks.mean(axis=0)

    @property
    def graphs(self) -> list[str]:
        """The graphs, each once."""
        return list(dict.fromkeys(place.graph for place in self.places))

    def alike(self) -> list[tuple[int, int]]:
        """The groups of methods that cannot be told apart, as first and last in the order of ranks; the largest only."""
        count = len(self.methods)
        found: list[tuple[int, int]] = []
        for first in range(count):
            last = first
            while last + 1 < count and all(self._alike(one, last + 1) for one in range(first, last + 1)):
                last += 1
            if last > first and (not found or last > found[-1][1]):
                found.append((first, last))
        return found

    def _alike(self, one: int, other: int) -> bool:
        p = self.p[frozenset((self.methods[one], self.methods[other]))]
        return math.isnan(p) or p >= ALPHA


def ranked_places(results: Mapping[str, StudyResult]) -> list[RankedPlace]:
    """The places of all studies that tune all methods alike, each once; the study that comes first has the say."""
    found: dict[str, RankedPlace] = {}
    for result in results.values():
        study = result.study
        if not study.tuned or study.rows != ["method"] or study.of != "run" or VALUE not in study.values:
            continue
        by_label = _method_of_row(study)
        for entry in result.summary.of(VALUE):
            method = by_label.get(entry.at["method"])
            if method is None or not entry.by_seed:
                continue
            key, graph = _what_is_run(study, entry.at)
            fresh = bool(study.seed_list) and not set(study.seed_list) & set(study.choosing_seeds())
            place = found.setdefault(key, RankedPlace(graph, _label(study, entry.at, graph), {}, {}, fresh))
            if method not in place.entries:
                place.entries[method] = entry
                place.costs[method] = result.costs.get(tuple(entry.at.values()), {})
    return list(found.values())


def rankings(places: Sequence[RankedPlace]) -> list[Ranking]:
    """Rankings of as many methods and places as possible: of any methods, of the papers' and ours with others, of those only.

    One is left out where an earlier one has its methods at as many places. The others are all shown: which methods have to take
    part decides which places count, and so who is ahead.
    """
    core = [name for name in _CORE if name in _named(places)]
    alone = [replace(place, entries={n: e for n, e in place.entries.items() if n in core}) for place in places]
    found: list[Ranking] = []
    for one in (rank_methods(places), rank_methods(places, core), rank_methods(alone, core)):
        if one is not None and not any(
            set(one.methods) <= set(other.methods) and len(one.places) <= len(other.places) for other in found
        ):
            found.append(one)
    return found


def rank_methods(places: Sequence[RankedPlace], core: Sequence[str] = ()) -> Ranking | None:
    """The ranking over as many methods and places as possible; None for fewer than three methods or two places.

    The methods of `core` have to take part.
    """
    chosen, whole = largest_block(places, core)
    if len(chosen) < 3 or len(whole) < 2:
        return None
    scores = np.array([[_score(place.entries[name]) for name in chosen] for place in whole])
    ranks = np.array([_ranks(row) for row in scores])
    order = np.argsort(ranks.mean(axis=0), kind="stable")
    names = tuple(chosen[number] for number in order)
    low, high = _interval(ranks[:, order], [place.graph for place in whole])
    pairs = list(combinations(names, 2))
    corrected = holm([wilcoxon_p(_ahead(whole, *pair)) for pair in pairs])
    fewer = {name: sum(name in place.entries for place in places) for name in _named(places) if name not in chosen}
    return Ranking(
        names, tuple(whole), ranks[:, order], low, high, dict(zip(map(frozenset, pairs), corrected, strict=True)), fewer
    )


def largest_block(places: Sequence[RankedPlace], first: Sequence[str] = ()) -> tuple[list[str], list[RankedPlace]]:
    """Methods, and the places that have all of them, so that there are as many numbers as possible.

    Methods are added in the order of how many places have them, after those that have to take part.
    """
    further = [name for name in _named(places) if name not in first]
    names = [*first, *sorted(further, key=lambda name: -sum(name in place.entries for place in places))]
    best: tuple[int, int] = 0, 0
    for count in range(max(3, len(first)), len(names) + 1):
        whole = sum(all(name in place.entries for name in names[:count]) for place in places)
        best = max(best, (count * whole, count))
    chosen = names[: best[1]]
    return chosen, [place for place in places if all(name in place.entries for name in chosen)]


def _named(places: Iterable[RankedPlace]) -> list[str]:
    found = dict.fromkeys(name for place in places for name in place.entries)
    return [name for name in found if name not in _LEFT_OUT]


def _score(entry: Entry) -> float:
    return entry.mean if entry.better == "higher" else -entry.mean


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks of scores [n], 1 for the highest; equals share their mean rank."""
    return (scores[None, :] > scores[:, None]).sum(1) + ((scores[None, :] == scores[:, None]).sum(1) + 1) / 2


def _ahead(places: Sequence[RankedPlace], first: str, second: str) -> np.ndarray:
    """By how much the first is better at each place [P]: the mean over the seeds that both have, on the same splits."""
    out = []
    for place in places:
        one, other = place.entries[first], place.entries[second]
        shared = [seed for seed in one.by_seed if seed in other.by_seed]
        sign = 1 if one.better == "higher" else -1
        differences = [one.by_seed[seed] - other.by_seed[seed] for seed in shared]
        out.append(sign * float(np.mean(differences)) if shared else _score(one) - _score(other))
    return np.array(out)


def _interval(ranks: np.ndarray, graphs: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval of the mean ranks of ranks [P, n], by the bootstrap.

    Places of one graph are alike, so that whole graphs are drawn, with all their places; places where there are few graphs.
    """
    rng = np.random.default_rng(0)
    names = list(dict.fromkeys(graphs))
    groups = [np.flatnonzero([graph == name for graph in graphs]) for name in names]
    if len(names) < FEWEST_GRAPHS:
        groups = [np.array([place]) for place in range(len(graphs))]
    means = np.array(
        [
            ranks[np.concatenate([groups[g] for g in rng.integers(0, len(groups), len(groups))])].mean(axis=0)
            for _ in range(DRAWS)
        ]
    )
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    return low, high


def _method_of_row(study: Study) -> dict[str, str]:
    """By label of a row, its method, where no other row has the same one and it sets nothing else."""
    levels = study.axes["method"]
    named = [level.options.get("method") for level in levels]
    return {
        level.label: name
        for level, name in zip(levels, named, strict=True)
        if name in methods() and named.count(name) == 1 and not level.options.keys() - {"method", "settings"}
    }


def _what_is_run(study: Study, at: Coordinates) -> tuple[str, str]:
    """What determines a place but for the method, as a text, and its graph."""
    options = {k: v for k, v in study.options_at(at).items() if k not in ("method", "settings")}
    tuning = (study.seed_list, study.choose_on_list, study.choose_at)  # other seeds or candidates make another place
    return json.dumps([options, tuning], sort_keys=True), str(options.get("dataset", ""))


def _label(study: Study, at: Coordinates, graph: str) -> str:
    rest: Place = tuple(label for axis, label in at.items() if axis != "method")
    return " ".join(rest) if "dataset" in study.axes else f"{graph} {' '.join(rest)}".strip()
