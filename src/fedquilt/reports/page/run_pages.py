"""The pages of a run and of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedquilt.reports.names import metric_name
from fedquilt.reports.page.chart_data import page_run
from fedquilt.reports.page.class_tables import metric_tables, run_class_tables
from fedquilt.reports.page.data import Page, PageFacts
from fedquilt.reports.page.rerun import command_of_all
from fedquilt.reports.page.rich_table import page_table
from fedquilt.reports.read_run import StoredRun, read_runs, with_failed_rows
from fedquilt.reports.stored_verdict import verdict_of
from fedquilt.reports.tables import comparison_table, run_table
from fedquilt.reports.verdict import score
from fedquilt.runs.failed_method import FAILED
from fedquilt.runs.machine import read_machine

Result = Mapping[str, Any]
"""The content of result.json, of a finished run or of one that still trains."""

_HOW = "The test metric of the round with the best mean validation metric"


def page_of_folder(folder: Path) -> Page:
    """The page of a run's folder or of a comparison's; an error before the first evaluation."""
    runs, several = read_runs(folder)
    return page_of_comparison(folder.resolve().name, runs, folder) if several else page_of_run(runs[0])


def page_of_folders(folders: Sequence[Path]) -> Page:
    """The page of several folders side by side, each a run's or a comparison's; of one folder as `page_of_folder`."""
    if len(folders) == 1:
        return page_of_folder(folders[0])
    runs = [run for folder in folders for run in read_runs(folder)[0]]
    return page_of_comparison(f"{_count(len(runs), 'run')} side by side", runs)


def about_runs(runs: Sequence[StoredRun]) -> str:
    """When the runs were trained, with which versions, and on what, each once."""
    facts = [read_machine(run.folder) for run in runs]
    versions = [run.config.get("versions") or {} for run in runs]
    days = sorted({str(fact["date"])[:10] for fact in facts if "date" in fact})
    made = [f"{name} {version}" for name in ("fedquilt", "torch") for version in _each(versions, name)]
    where = [*_each(facts, "gpu"), *_each(facts, "cpu")]
    cpus = [f"{count} CPU{'' if count == '1' else 's'}" for count in _each(facts, "cpus")]
    when = [days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"] if days else []
    parts = [*when, *made, *where, *cpus]
    return f"Trained: {', '.join(parts)}." if parts else ""


def _each(facts: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """The values that mappings have under a name, each once."""
    return list(dict.fromkeys(str(fact[name]) for fact in facts if fact.get(name) is not None))


def page_of_run(run: StoredRun) -> Page:
    """The page of one run, which was evaluated at least once."""
    result = run.result
    assert result is not None
    lead = (
        f"{metric_name(result['metric']).heading} of {_score(result)} on test nodes, "
        f"the mean over clients and {_count(len(result['seeds']), 'seed')}."
    )
    table = page_table(run_table(result), "", f"{_HOW}, for each seed.", bold="")
    return Page(
        title=f"{result['method']} on {setting_of(result)}",
        lead=lead,
        notes=tuple(run.unfinished),
        about=about_runs([run]),
        tables=(table, *run_class_tables(run)),
        runs=(page_run([run], str(result["method"]), setting_of(result)),),
    )


def page_of_comparison(name: str, runs: Sequence[StoredRun], folder: Path | None = None) -> Page:
    """The page of several runs; `name` is the title where their settings differ.

    Runs that were not evaluated yet have no row and no charts; the notes name them. `folder` is the comparison's, which
    knows the methods that failed: they have a row.
    """
    pairs = [(run, result) for run in runs if (result := run.result) is not None]
    results = [result for _, result in pairs]
    rows = results if folder is None else with_failed_rows(folder, results)
    settings = list(dict.fromkeys(map(setting_of, results)))
    seeds = max(len(result["seeds"]) for result in results)
    caption = f"{_HOW}; mean ± deviation over seeds." if seeds > 1 else f"{_HOW}."
    labels = _labels([run.folder for run, _ in pairs], results)
    charts = tuple(
        page_run([run], label, setting_of(result)) for (run, result), label in zip(pairs, labels, strict=True)
    )
    command = command_of_all(charts)
    return Page(
        title=settings[0] if len(settings) == 1 else name,
        lead=" ".join(verdict_of(runs)) or _lead(results, len(settings)),
        notes=(
            *(f"{row['method']} failed: {row[FAILED]}" for row in rows if row.get(FAILED)),
            *(f"{run.method}: {sentence}" for run in runs for sentence in run.unfinished),
        ),
        about=about_runs(runs),
        tables=(
            page_table(comparison_table(rows), "", f"{caption} {_metric_caption(results)}".strip()),
            *metric_tables(results),
        ),
        runs=charts,
        facts=(PageFacts("To run all of it again", code=command),) if command else (),
    )


def setting_of(result: Result) -> str:
    """What a run was trained on, such as "cora, disjoint, 10 clients"."""
    return f"{result['dataset']}, {_stem(result['partition'])}, {_count(result['clients'], 'client')}"


def _lead(results: Sequence[Result], settings: int) -> str:
    measured = [result for result in results if result["test_mean"] is not None]
    if len(results) == 1:
        return f"{results[0]['method']} is the only one with a result: {_score(results[0])}."
    if settings > 1 or len(measured) < 2:
        return f"{_count(len(results), 'run')} side by side."
    metric = metric_name(measured[0]["metric"])
    first, second = sorted(measured, key=lambda result: result["test_mean"], reverse=metric.higher_is_better)[:2]
    seeds = _count(len(first["seeds"]), "seed")
    return (
        f"{first['method']} has the best test {metric.title}, "
        f"{_score(first)}; next is {second['method']} with {_score(second)}. {len(results)} methods, {seeds}."
    )


def _labels(folders: Sequence[Path], results: Sequence[Result]) -> list[str]:
    """The method of each run, or its folder where a method has several runs in a setting."""
    pairs = [(str(result["method"]), setting_of(result)) for result in results]
    times = Counter(pairs)
    several = any(count > 1 for count in times.values())
    return [folder.name if several else method for folder, (method, _) in zip(folders, pairs, strict=True)]


def _metric_caption(results: Sequence[Result]) -> str:
    names = list(dict.fromkeys(metric_name(result["metric"]) for result in results))
    if len(names) > 1:
        return ""
    return f"{names[0].heading} in %." if names[0].percent else f"{names[0].heading}."


def _score(result: Result) -> str:
    return score(result, metric_name(result["metric"]))


def _stem(partition: Any) -> str:
    """A partition's name; of a partition file, its name without folders."""
    return Path(str(partition)).name


def _count(number: int | None, what: str) -> str:
    return f"{'?' if number is None else number} {what}{'' if number == 1 else 's'}"
