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
from fedquilt.studies.scoreboard.claims import Finding, findings
from fedquilt.studies.scoreboard.costs import Cost, method_costs
from fedquilt.studies.scoreboard.figures import all_figures, title_of
from fedquilt.studies.scoreboard.ranking import Ranking, ranked_places, rankings
from fedquilt.studies.scoreboard.results import StudyResult
from fedquilt.studies.scoreboard.verdicts import Verdicts, all_verdicts

PAGE, FIGURES = "index.md", "scoreboard"


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
    lines = ["# Scoreboard: every printed number beside ours", "", *_lead(board), "", f"    {command}", ""]
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
    return [f"![{name}]({FIGURES}/{name}.svg)", ""]


def _lead(board: Scoreboard) -> Iterator[str]:
    """Sentences about how much there is, and where it was computed."""
    total = _sum(board.verdicts)
    yield (
        f"Of {total.printed:,} numbers that five papers print, {total.run:,} were run: {total.exceeded:,} exceeded, "
        f"{total.reached:,} reached within 1.0 below, {total.missed:,} missed. Written by one command from the results of "
        f"{len(board.results)} studies:"
    )
    cells = {cell.folder: cell for result in board.results.values() for cell in result.cells}
    if cells:
        seconds = sum(float(cell.facts.get("seconds", 0.0)) for cell in cells.values())
        machines = ", ".join(sorted({str(cell.facts["device"]) for cell in cells.values()}))
        stale = sum(cell.stale for cell in cells.values())
        aged = f"; {stale:,} of them are stale, finished by another version of the computation" if stale else ""
        yield ""
        yield f"{len(cells):,} finished runs, {duration(seconds)} of training one after the other ({machines}){aged}."


def _sum(verdicts: Sequence[Verdicts], name: str = "") -> Verdicts:
    total = Verdicts(name, name)
    for one in verdicts:
        total = total.plus(one)
    return total


def _verdicts(verdicts: Sequence[Verdicts], folder: Path) -> Iterator[str]:
    yield "| table | printed | exceeded | within 1.0 | missed | not run |"
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
    yield "| method | mean rank | 95 % interval | best in | told apart from the next (p) |"
    yield "|---|---:|---:|---:|---:|"
    best = (ranking.ranks == ranking.ranks.min(axis=1, keepdims=True)).sum(axis=0)
    for number, name in enumerate(ranking.methods):
        rest = ranking.methods[number + 1 : number + 2]
        p = ranking.p[frozenset((name, rest[0]))] if rest else math.nan
        interval = f"{ranking.low[number]:.2f} to {ranking.high[number]:.2f}"
        yield f"| {title_of(name)} | {ranking.means[number]:.2f} | {interval} | {best[number]} | {_p(p)} |"
    yield ""
    what = "graphs" if len(ranking.graphs) > 2 else "places"
    yield (
        f"Ranks among {len(ranking.methods)} methods at the {len(ranking.places)} places (graph, partition, clients) of "
        "studies that tune all alike and where all of them were run; a place that several studies have counts once. "
        f"Intervals are the bootstrap's over {what}. p is Wilcoxon's over places, of differences paired by seed, corrected "
        f"by Holm for all {len(ranking.p)} pairs. Places of one graph are alike, so that p is too small rather than too large."
    )
    fresh = sum(place.fresh for place in ranking.places)
    yield ""
    yield (
        f"At {fresh} of these places the seeds took no part in choosing settings. At the others seed 0 did, and Quilt, which "
        "is ours, was developed on seeds 0 to 2 of some of these graphs: there its rank is flattered."
    )
    if ranking.fewer:
        rest_of = ", ".join(f"{title_of(name)} ({count})" for name, count in ranking.fewer.items())
        yield ""
        yield f"Not in this ranking, as they were not run at all of these places (in brackets: at how many of any): {rest_of}."
    yield ""


def _costs(costs: Sequence[Cost]) -> Iterator[str]:
    yield "| method | points above FedAvg | time of a round | ms, median | bytes of a round | MB, median |"
    yield "|---|---:|---:|---:|---:|---:|"
    for cost in sorted(costs, key=lambda one: -one.gain):
        numbers = f"{cost.gain:+.2f} | {cost.time:.2f}x | {1000 * cost.seconds:.2f} | {cost.bytes:.2f}x | {cost.megabytes:.2f}"
        yield f"| {title_of(cost.method)} | {numbers} |"
    yield ""
    yield (
        f"Means over {costs[0].places} places that have all of these methods; time and bytes (up and down, of one client) are "
        "geometric means of ratios to FedAvg at the same place. Runs shared a device with others, so that times are only "
        "good for comparing. The pale line joins the methods that no other one beats in both."
    )
    yield ""


def _claims(found: Sequence[Finding]) -> Iterator[str]:
    yield "| paper | what it claims | printed gain | our gain | places | p | verdict |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for one in found:
        numbers = f"{_signed(one.printed)} | {_signed(one.ours)} | {one.places} | {_p(one.p)}"
        yield f"| {one.paper} | {one.mechanism} ({one.study}) | {numbers} | {one.verdict} |"
    yield ""
    yield (
        "Gains are means over places, printed ones over all that the paper prints, ours over those that were run. p is "
        "Wilcoxon's over pairs of place and seed, corrected by Holm for the number of claims. *Shows*: ahead with p < 0.05; "
        "*points that way*: ahead, and it may be chance. The next best row is that of the paper's rows with "
        "the best average, by the paper's numbers for its gain and by ours for ours."
    )
    yield ""


def _not_run(board: Scoreboard) -> Iterator[str]:
    """The studies with printed numbers of which nothing was run, and those of which a part was."""
    for what, wanted in (("Nothing", lambda one: not one.run), ("A part", lambda one: one.run and one.not_run)):
        names = [one.label for one in board.verdicts if wanted(one)]
        if names:
            yield f"- {what} was run of: {'; '.join(names)}."
    yield "- `fedquilt study show NAME` says what is missing of a study and how long that takes; `study run` runs it."


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}"


def _p(p: float) -> str:
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.2g}"
