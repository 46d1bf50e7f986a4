"""The tables of docs/results/quilt.md from finished cells: `python -m benchmarks.comparison_tables --into studies`.

    fedquilt study merge docs/results/*.jsonl.gz
    python -m benchmarks.comparison_tables --page docs/results/quilt.md

replaces what stands between `<!-- NAME -->` and `<!-- end -->` on the page by the table NAME. Without --page all are printed.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from fedquilt.reports.paired_test import wilcoxon_p
from fedquilt.studies.gather import gather
from fedquilt.studies.plan import plan_study

OURS = "Quilt"
APART = ("Centralised", "Majority")  # no federation, and nothing learned: not counted among the others
PAPERS = ("FED-PUB", "FedSheafHN", "FedHERO", "FedIIH", "FedSSA")
HELD_OUT = ("Amazon-Computers", "Tolokers", "Squirrel")
LEVEL = 0.2  # points
LEVEL_WITH = "best, or within 0.2 of it"
SHOWN = 8  # methods of a block beside those of the papers
Place = tuple[str, str]  # graph and cut


@dataclass(frozen=True)
class Results:
    """Test metrics in percent of one study.

    Attributes:
        seeds: how many are reported.
        by_place: by place and method, the metric of each seed; methods without all seeds are left out.
    """

    seeds: int
    by_place: dict[Place, dict[str, list[float]]]

    def mean(self, place: Place, method: str) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.by_place[place][method])

    def others(self, place: Place) -> list[str]:
        """The methods beside ours that are counted at a place, the best first."""
        found = [method for method in self.by_place[place] if method not in (OURS, *APART)]
        return sorted(found, key=lambda method: -self.mean(place, method))

    def best(self, place: Place) -> float:
        """The best mean of all that are counted."""
        return max(self.mean(place, method) for method in (OURS, *self.others(place)))

    def ahead(self, place: Place) -> float:
        """By how much ours is ahead of the best other method."""
        return self.mean(place, OURS) - self.mean(place, self.others(place)[0])

    def ahead_on_other_seeds(self, place: Place) -> float:
        """By how much ours is ahead of a method that was the best on seeds other than those it is compared on.

        The best mean of many is partly luck. For each seed the method with the best mean over the others is chosen, and
        compared on that one: the mean of these differences has no such luck in it. NaN with one seed.
        """
        found, seeds = self.by_place[place], range(self.seeds)

        def best_without(seed: int) -> str:
            kept = [other for other in seeds if other != seed]
            return max(self.others(place), key=lambda method: statistics.fmean(found[method][k] for k in kept))

        if self.seeds < 2:
            return math.nan
        return statistics.fmean(found[OURS][seed] - found[best_without(seed)][seed] for seed in seeds)


def read_results(study: str, into: Path) -> Results:
    """The finished cells of a study with axes `method`, `dataset` and `cut`, where ours and another method's are."""
    summary = gather(plan_study(study), into)
    by_place: dict[Place, dict[str, list[float]]] = {}
    for entry in summary.of("test"):
        if entry.by_seed and len(entry.by_seed) == entry.planned:
            values = [value for _, value in sorted(entry.by_seed.items())]
            by_place.setdefault((entry.at["dataset"], entry.at["cut"]), {})[entry.at["method"]] = values
    everywhere = Results(summary.seeds, by_place)
    kept = {place: found for place, found in by_place.items() if OURS in found and everywhere.others(place)}
    return Results(summary.seeds, kept)


def blocks(results: Results) -> dict[str, list[Place]]:
    """The places that ours was developed on, those that were held out, and all."""
    every = list(results.by_place)
    held_out = [place for place in every if place[0] in HELD_OUT]
    found = {"Development": [place for place in every if place not in held_out], "Held out": held_out, "All": every}
    return {name: places for name, places in found.items() if places}


def mean_ranks(results: Results, places: Sequence[Place], apart: Iterable[str] = APART) -> dict[str, float]:
    """By method, the mean rank among the methods that all places have; equal means share their mean rank."""
    first, *rest = (results.by_place[place] for place in places)
    names = [name for name in first if name not in apart and all(name in found for found in rest)]
    means = np.array([[results.mean(place, name) for name in names] for place in places])
    ranks = rankdata(-means, axis=1).mean(axis=0).tolist()
    return dict(sorted(zip(names, ranks, strict=True), key=lambda item: item[1]))


def summary_table(results: Results) -> list[str]:
    """A block each: mean ranks, how often best or level with it, distance to the best, and ours against each."""
    lines = _head("", "mean rank", LEVEL_WITH, "below the best on average", "at most", "Quilt - it, mean", "Wilcoxon p")
    for name, places in blocks(results).items():
        ranks = mean_ranks(results, places)
        graphs = list(dict.fromkeys(graph for graph, _ in places))
        lines.append(_row(f"*{name} ({', '.join(graphs)}): {len(places)} cells, {len(ranks)} methods*", *[""] * 6))
        first = [method for method in ranks if method != OURS][:SHOWN]
        run = {method for place in places for method in results.by_place[place]}
        more = [method for method in PAPERS if method in run and method not in first]
        more.sort(key=lambda method: ranks.get(method, math.inf))
        lines += [_summary_row(results, places, method, ranks) for method in (OURS, *first, *more)]
    return lines


def _summary_row(results: Results, places: Sequence[Place], method: str, ranks: dict[str, float]) -> str:
    there = [place for place in places if method in results.by_place[place]]
    gaps = [results.best(place) - results.mean(place, method) for place in there]
    level = f"{sum(_level(gap) for gap in gaps)} of {len(there)}"
    rank = f"{ranks[method]:.2f}" if method in ranks else ""
    label = f"**{OURS}, defaults**" if method == OURS else method
    label += "" if len(there) == len(places) else f" ({len(there)} of {len(places)} cells)"
    distances = f"{statistics.fmean(gaps):.2f}", f"{max(gaps):.2f}"
    if method == OURS:
        return _row(label, rank, level, *distances, "", "")
    ahead = np.array([results.mean(place, OURS) - results.mean(place, method) for place in there])
    p = wilcoxon_p(ahead)  # NaN for too few places
    return _row(label, rank, level, *distances, f"{ahead.mean():+.2f}", "" if math.isnan(p) else f"{p:.1g}")


def graph_table(results: Results) -> list[str]:
    """A graph each, then blocks: how often ours is best or level, and how far behind it is."""
    lines = _head(
        "", LEVEL_WITH, "first", "mean gap", "worst gap", "where", "level with the best on other seeds", "methods"
    )
    found = blocks(results)
    graphs: dict[str, list[Place]] = {}
    for place in found["All"]:
        graphs.setdefault(place[0], []).append(place)
    for name, places in {**graphs, **{f"*{name}*": places for name, places in found.items()}}.items():
        gaps = {place: max(0.0, -results.ahead(place)) for place in places}
        worst = max(gaps, key=lambda place: gaps[place])
        where = f"{' '.join(worst)} ({results.others(worst)[0]})" if gaps[worst] > 0 else ""
        counts = [len(results.others(place)) for place in places]
        beside = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])
        lines.append(
            _row(
                name,
                f"{sum(map(_level, gaps.values()))} of {len(places)}",
                str(sum(gap == 0 for gap in gaps.values())),
                f"{statistics.fmean(gaps.values()):.2f}",
                f"{gaps[worst]:.2f}",
                where,
                f"{sum(_level(-results.ahead_on_other_seeds(place)) for place in places)} of {len(places)}",
                beside,
            )
        )
    return lines


def cell_table(results: Results) -> list[str]:
    """A place each: ours, the best of the others, and which place ours takes."""
    lines = _head(
        "", "Quilt, defaults", "best of the others, tuned", "Quilt - best", "place, of", "Quilt - best on other seeds"
    )
    for place, found in results.by_place.items():
        own = f"{statistics.fmean(found[OURS]):.2f} ± {statistics.pstdev(found[OURS]):.2f}"
        others, ahead = results.others(place), results.ahead(place)
        rank = 1 + sum(results.mean(place, method) > results.mean(place, OURS) for method in others)
        best = f"{others[0]} {results.mean(place, others[0]):.2f}"
        own = f"**{own}**" if _level(-ahead) else own
        without_luck = f"{results.ahead_on_other_seeds(place):+.2f}"
        lines.append(_row(" ".join(place), own, best, f"{ahead:+.2f}", f"{rank} of {len(others) + 1}", without_luck))
    return lines


def rank_table(results: Results) -> list[str]:
    """Every method, those that are set apart too: its mean rank over all places, and where it is the best."""
    places = blocks(results)["All"]
    ranks = mean_ranks(results, places, apart=())
    tops = [max(ranks, key=lambda method: results.mean(place, method)) for place in places]
    lines = _head("", f"mean rank of {len(ranks)}", f"best in, of {len(places)}")
    return lines + [_row(method, f"{rank:.2f}", str(tops.count(method))) for method, rank in ranks.items()]


def method_table(results: Results) -> list[str]:
    """Every method and place: the mean over seeds, the best of those that are counted in bold."""
    graphs = list(dict.fromkeys(graph for graph, _ in results.by_place))
    lines: list[str] = []
    for graph in graphs:
        places = [place for place in results.by_place if place[0] == graph]
        methods = list(dict.fromkeys(method for place in places for method in results.by_place[place]))
        lines += ["", f"**{graph}**", "", *_head("", *(cut for _, cut in places))]
        lines += [_row(method, *(_cell(results, place, method) for place in places)) for method in methods]
    return lines[1:]


def _cell(results: Results, place: Place, method: str) -> str:
    values = results.by_place[place].get(method)
    if values is None:
        return ""
    text = f"{statistics.fmean(values):.2f} ± {statistics.pstdev(values):.2f}"
    return (
        f"**{text}**" if method not in APART and math.isclose(statistics.fmean(values), results.best(place)) else text
    )


def _level(gap: float) -> bool:
    """Whether a distance to the best is none that the page counts; gaps are compared as they are printed."""
    return round(gap, 2) <= LEVEL


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


TABLES: dict[str, tuple[str, Callable[[Results], list[str]]]] = {
    "summary": ("quilt-comparison", summary_table),
    "graphs": ("quilt-comparison", graph_table),
    "cells": ("quilt-comparison", cell_table),
    "ranks": ("quilt-comparison", rank_table),
    "methods": ("quilt-comparison", method_table),
    "unseen cells": ("quilt-unseen-seeds", cell_table),
    "unseen summary": ("quilt-unseen-seeds", summary_table),
}


def fill(page: str, tables: dict[str, list[str]]) -> str:
    """The page with these tables between their marks."""
    for name, lines in tables.items():
        whole = "\n".join((f"<!-- {name} -->", *lines, "<!-- end -->"))
        mark = re.compile(rf"<!-- {name} -->\n.*?<!-- end -->", re.DOTALL)
        page = mark.sub(whole.replace("\\", r"\\"), page)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=Path("studies"), help="the folder with finished cells")
    parser.add_argument("--page", type=Path, help="the page whose tables are written anew; by default all are printed")
    given = parser.parse_args()
    results = {study: read_results(study, given.into) for study in dict.fromkeys(study for study, _ in TABLES.values())}
    tables = {name: table(results[study]) for name, (study, table) in TABLES.items()}
    if given.page is not None:
        given.page.write_text(fill(given.page.read_text(encoding="utf-8"), tables), encoding="utf-8")
        return
    for name, lines in tables.items():
        print(f"\n{name}\n", *lines, sep="\n")


if __name__ == "__main__":
    main()
