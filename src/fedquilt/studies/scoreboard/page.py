"""The page of the scoreboard as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from fedquilt.common.console import duration
from fedquilt.common.files import write_text
from fedquilt.reports.style import save_figure, styled
from fedquilt.studies.scoreboard.claims import NOT, OPPOSITE, POINTS, SHOWS, Finding, findings
from fedquilt.studies.scoreboard.costs import Cost, method_costs
from fedquilt.studies.scoreboard.figures import all_figures, title_of
from fedquilt.studies.scoreboard.ranking import FEWEST_GRAPHS, Ranking, ranked_places, rankings
from fedquilt.studies.scoreboard.results import StudyResult
from fedquilt.studies.scoreboard.verdicts import Verdicts, all_verdicts
from fedquilt.studies.summary import WITHIN

PAGE, FIGURES = "index.md", "scoreboard"
# What figures show, by name, for those who cannot see them.
_SHOWN = {
    "verdicts": "For each table a bar: the share of its printed numbers that were exceeded, nearly reached and missed",
    "costs": "Points above FedAvg against the time of a round, for each method",
    "bytes": "Points above FedAvg against the bytes of a round, for each method",
}
_RANKS_SHOWN = "The mean rank of each method with its interval; bars join methods that cannot be told apart"


@dataclass(frozen=True)
class Scoreboard:
    """All that the page shows."""

    results: Mapping[str, StudyResult]
    verdicts: Sequence[Verdicts]
    rankings: Sequence[Ranking]
    costs: Sequence[Cost]
    findings: Sequence[Finding]


def scoreboard_of(results: Mapping[str, StudyResult]) -> Scoreboard:
    """Compute everything."""
    places = ranked_places(results)
    return Scoreboard(results, all_verdicts(results), rankings(places), method_costs(places), findings(results))


def write_scoreboard(board: Scoreboard, folder: Path, command: str) -> list[Path]:
    """Write index.md, and the figures as SVG and PNG to scoreboard/; returns their paths."""
    paths = []
    for name, figure in all_figures(board.rankings, board.costs, board.verdicts):
        with styled():
            figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is made once, so that all formats are alike
        for kind in ("svg", "png"):
            path = folder / FIGURES / f"{name}.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            save_figure(figure, path)
            paths.append(path)
    drawn = {path.stem for path in paths}
    write_text(folder / PAGE, to_markdown(board, command, drawn, folder))
    return [folder / PAGE, *paths]


def to_markdown(board: Scoreboard, command: str, drawn: set[str], folder: Path) -> str:
    """The page; `drawn` are the figures that there are, and `folder` is where the page lies, to link reports beside it."""
    lines = ["# Scoreboard: every printed number beside ours", "", *_lead(board, command), ""]
    if "costs" in drawn:
        images = [*_image("costs"), *_image("bytes")]
        lines += ["## What it costs, what it gains", "", *images, *_costs(board.costs)]
    for number, ranking in enumerate(board.rankings, start=1):
        title = f"## Ranks of {len(ranking.methods)} methods at {len(ranking.places)} places"
        lines += [title, "", *_image(f"ranks-{number}"), *_ranks(ranking)]
    lines += ["## Tables of the papers", "", *(_image("verdicts") if "verdicts" in drawn else [])]
    lines += [*_verdicts(board.verdicts, folder), "## What the papers claim, and whether it shows", ""]
    lines += [*_claims(board.findings), "## Left to run", "", *_not_run(board), ""]
    return "\n".join(lines)


def _image(name: str) -> list[str]:
    return [f"![{_SHOWN.get(name, _RANKS_SHOWN)}]({FIGURES}/{name}.svg)", ""]


def _lead(board: Scoreboard, command: str) -> Iterator[str]:
    """Sentences about how much there is, and where it was computed."""
    total = _sum(board.verdicts)
    yield (
        f"The papers print {total.printed:,} numbers in their tables and figures, most of them test accuracies in percent. For "
        f"{total.run:,} of them we have a number of our own, the mean over the seeds that were run: {total.exceeded:,} are at "
        f"least as good as the printed one, {total.reached:,} are at most {WITHIN:.1f} points behind it, and {total.missed:,} "
        "are further behind."
    )
    yield ""
    yield f"The page is made from the results of {len(board.results)} studies by the command"
    yield ""
    yield f"    {command}"
    cells = {cell.folder: cell for result in board.results.values() for cell in result.cells}
    if cells:
        seconds = sum(float(cell.facts.get("seconds", 0.0)) for cell in cells.values())
        machines = ", ".join(sorted({str(cell.facts["device"]) for cell in cells.values()}))
        yield ""
        yield f"Behind it are {len(cells):,} finished runs, {duration(seconds)} of training one after the other ({machines})."
    if stale := sum(one.stale for one in board.results.values()):
        yield ""
        yield f"{stale:,} of the runs are stale: another version of the computation finished them than the installed one."


def _sum(verdicts: Sequence[Verdicts], name: str = "") -> Verdicts:
    total = Verdicts(name, name)
    for one in verdicts:
        total = total.plus(one)
    return total


def _verdicts(verdicts: Sequence[Verdicts], folder: Path) -> Iterator[str]:
    yield (
        "A line is a table or a figure of a paper. *Printed*: how many numbers it has, averages apart. *Exceeded*: ours is at "
        f"least as good. *Within {WITHIN:.1f}*: ours is at most so many points behind; of statistics of graphs, at most one "
        "percent away. *Missed*: ours is further behind. *Not run*: we have none."
    )
    yield ""
    yield f"| table | printed | exceeded | within {WITHIN:.1f} | missed | not run |"
    yield "|---|---:|---:|---:|---:|---:|"
    for paper, group in groupby(verdicts, key=lambda one: one.title.partition(",")[0]):
        mine = list(group)
        for one in mine:
            report = folder / "studies" / one.name / "report.md"
            name = f"[{one.label}](studies/{one.name}/report.md)" if report.is_file() else one.label
            yield f"| {name} | {one.printed} | " + " | ".join(map(str, one.counts)) + " |"
        if len(mine) > 1:
            total = _sum(mine)
            yield f"| **{paper}, all** | {total.printed} | " + " | ".join(f"**{n}**" for n in total.counts) + " |"
    yield ""


def _ranks(ranking: Ranking) -> Iterator[str]:
    count, places = len(ranking.methods), len(ranking.places)
    yield (
        "A place is a graph, a partition and a number of clients. At each place methods are ranked by their mean test metric "
        f"over seeds: 1 is the best, and equals share their mean rank. Counted are the {places} places, of "
        f"{len(ranking.graphs)} graphs, of studies that tune all methods alike and where all of these {count} methods were "
        "run; a place that several studies have counts once."
    )
    yield ""
    yield "| method | mean rank | 95 % interval | best at | p against the next |"
    yield "|---|---:|---:|---:|---:|"
    best = (ranking.ranks == ranking.ranks.min(axis=1, keepdims=True)).sum(axis=0)
    for number, name in enumerate(ranking.methods):
        rest = ranking.methods[number + 1 : number + 2]
        p = ranking.p[frozenset((name, rest[0]))] if rest else math.nan
        interval = f"{ranking.low[number]:.2f} to {ranking.high[number]:.2f}"
        yield f"| {title_of(name)} | {ranking.means[number]:.2f} | {interval} | {best[number]} | {_p(p)} |"
    yield ""
    what = "graphs" if len(ranking.graphs) >= FEWEST_GRAPHS else "places"
    yield (
        f"*95 % interval*: of the mean rank, by the bootstrap over {what}. *Best at*: at how many places it has the best rank. "
        "*p against the next*: of Wilcoxon's signed-rank test over places against the method of the next line, on the same "
        f"seeds, corrected by Holm's method for all {len(ranking.p)} pairs of methods; the two can be told apart where it is "
        "below 0.05. Places of one graph are alike, which makes p too small rather than too large."
    )
    yield ""
    yield _seeds(sum(place.fresh for place in ranking.places), places)
    if ranking.fewer:
        rest_of = ", ".join(f"{title_of(name)} ({number})" for name, number in ranking.fewer.items())
        yield ""
        yield f"Not ranked, as they were not run at all of these places (in brackets: at how many places they were): {rest_of}."
    yield ""


def _seeds(fresh: int, places: int) -> str:
    """A sentence about how many of the places report seeds that took no part in choosing settings."""
    if fresh == places:
        return "At all of these places, no seed that is reported took part in choosing settings."
    some = (
        f"At {fresh} of these places, no seed that is reported took part in choosing settings. At the others seed 0 did"
    )
    return (
        f"{some if fresh else 'At these places, settings were chosen on seed 0, which is also reported'}, and Quilt, which is "
        "ours, was developed on seeds 0 to 2 of some of these graphs: there its rank is flattered."
    )


def _costs(costs: Sequence[Cost]) -> Iterator[str]:
    yield "| method | points above FedAvg | time of a round | median, ms | bytes of a round | median, MB |"
    yield "|---|---:|---:|---:|---:|---:|"
    for cost in sorted(costs, key=lambda one: -one.gain):
        time = "– | –" if cost.time is None or cost.seconds is None else f"{cost.time:.2f}x | {1000 * cost.seconds:.2f}"
        yield f"| {title_of(cost.method)} | {cost.gain:+.2f} | {time} | {cost.bytes:.2f}x | {cost.megabytes:.2f} |"
    yield ""
    yield (
        f"*Points above FedAvg*: the mean over the {costs[0].places} places that have all of these methods. *Time* and *bytes* "
        "of a round are in FedAvg's at the same place, geometric means over places (of times those with both on one device); "
        "beside them stand medians as they are. "
        "Bytes are those that a client sends and is sent. Runs may have shared a device with others, so that times are only "
        "good for comparing, and there are none (–) of methods that were run on another device than FedAvg. In the figures, "
        "the pale line joins the methods that no other one beats in both."
    )
    yield ""


def _claims(found: Sequence[Finding]) -> Iterator[str]:
    yield (
        "A line compares places of a study (in brackets) that have what the paper claims to help with the same places without "
        "it. *Ahead of the next best row*: the paper's own method against the best on average of its other rows, by the "
        "printed numbers for the printed gain and by ours for ours. Gains are in points, means over places: the printed gain "
        "over those that the paper prints, ours over those that were run, of which *places* says how many. *p* is of "
        "Wilcoxon's signed-rank test over our pairs of place and seed, corrected by Holm's method for the number of claims "
        f"that were tested. *Verdict*: {SHOWS}: ahead, p < 0.05; {POINTS}: ahead, which may be chance; {NOT}: not ahead; "
        f"{OPPOSITE}: behind, p < 0.05."
    )
    yield ""
    yield "| paper | what it claims | printed gain | our gain | places | p | verdict |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for one in found:
        numbers = f"{_signed(one.printed)} | {_signed(one.ours)} | {one.places} | {_p(one.p)}"
        yield f"| {one.paper} | {one.mechanism} ({one.study}) | {numbers} | {one.verdict} |"
    yield ""


def _not_run(board: Scoreboard) -> Iterator[str]:
    begun = sum(1 for one in board.verdicts if one.run and one.not_run)
    nothing = sum(1 for one in board.verdicts if not one.run)
    yield (
        f"Nothing was run of {nothing} of the {len(board.verdicts)} tables and figures above, and a part of {begun}: see the "
        "column *not run*. `fedquilt study show NAME` says what is missing of a study and how long that takes; "
        "`fedquilt study run NAME` runs it."
    )


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}"


def _p(p: float) -> str:
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.2g}"
