"""The numbers that the charts of the HTML report need of a run, from its folders."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.reports.names import metric_name
from fedquilt.reports.page.condense import curve, holdings, similarity, thinned, view_shares
from fedquilt.reports.page.data import PageRun, PageSeed, Similarity
from fedquilt.reports.page.rerun import command_of, config_of, facts_of
from fedquilt.reports.read_run import BEST, Record, StoredRun, StoredSeed, read_run
from fedquilt.reports.views import read_views
from fedquilt.runs.folder import SeedFolder
from fedquilt.runs.result import CLIENT_NAMES

_MAX_DOTS = 200  # clients of a seed that are drawn
_OTHER = "other"


def read_page_run(
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], label: str, setting: str
) -> PageRun:
    """Read one run's folder, or several folders that hold seeds of the same run; see `page_run`."""
    paths = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    if not paths:
        raise FedquiltError(f"The run '{label}' has no folder to read.")
    return page_run([read_run(Path(path)) for path in paths], label, setting)


def page_run(runs: Sequence[StoredRun], label: str, setting: str) -> PageRun:
    """The charts' numbers of a run whose seeds are in one or several folders, finished or not.

    `label` is the run's name in the charts, `setting` what it was trained on.
    """
    seeds = [seed for run in runs for seed in run.seeds]
    records = [seed.records for seed in seeds]
    numbers = [seed.seed for seed in seeds]
    config, metric = config_of(runs[0]), _metric(runs[0], seeds)
    return PageRun(
        label=label,
        setting=setting,
        method=str(config.get("method", label)),
        metric=metric,
        curve=curve(records, metric_name(metric).higher_is_better),
        seeds=tuple(_page_seed(run, seed) for run in runs for seed in run.seeds),
        upload=_bytes_a_round(records, "bytes_up"),
        download=_bytes_a_round(records, "bytes_down"),
        timings=_seconds_a_round(records),
        facts=facts_of(config, numbers),
        command=command_of(config, numbers),
    )


def _metric(run: StoredRun, seeds: Sequence[StoredSeed]) -> str:
    """The metric's name: the config's, else a summary's, since the config may leave it to the dataset."""
    named = (seed.summary.get("metric") for seed in seeds if seed.summary is not None)
    return str(run.config.get("metric") or next(filter(None, named), "accuracy"))


def _page_seed(run: StoredRun, seed: StoredSeed) -> PageSeed:
    summary = seed.summary or {}
    best_round = summary.get("best_round")
    tests = summary.get("clients_test") or []
    names = tuple(map(str, summary.get(CLIENT_NAMES) or ()))
    views = read_views(run, seed, seed.folder.load_arrays("findings"))
    clients = thinned([m for m, test in enumerate(tests) if test is not None], _MAX_DOTS, lambda m: tests[m])
    return PageSeed(
        seed=seed.seed,
        best_round=best_round,
        clients=tuple(clients),
        tests=tuple(round(float(tests[m]), 2) for m in clients),
        similarities=_similarities(seed.folder, best_round),
        holdings=holdings(seed.folder.load_arrays("split-and-partition"), names, _class_names(summary)),
        names=names,
        views=None if views is None else view_shares(views),
    )


def _class_names(summary: Mapping[str, Any]) -> list[str] | None:
    """The names of the classes, as far as the seed knows them."""
    names = (summary.get("confusion") or {}).get("class_names")
    return [str(name) for name in names] if isinstance(names, list) else None


def _similarities(place: SeedFolder, best_round: int | None) -> tuple[Similarity, ...]:
    """The matrices in the order of their rounds; the best round's is at its own round."""
    arrays = place.load_arrays("similarity") or {}
    found = []
    for name, array in arrays.items():
        number = int(name)
        best = number == BEST
        if not best and number == best_round and str(BEST) in arrays:
            continue  # the same matrix under its round's own number
        when = (best_round if best_round is not None else BEST) if best else number
        found.append(similarity(np.asarray(array, dtype=float), when, best))
    return tuple(sorted(found, key=lambda one: (one.round < 0, one.round, one.best)))


def _bytes_a_round(records: Sequence[Sequence[Record]], key: str) -> dict[str, float]:
    """Bytes a round by name of tensor: the mean over all rounds of all seeds, the largest first."""
    rounds = sum(map(len, records))
    total: dict[str, float] = defaultdict(float)
    for rows in records:
        for record in rows:
            for name, count in (record.get(key) or {}).items():
                total[name] += count
    means = {name: round(count / rounds, 1) for name, count in total.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _seconds_a_round(records: Sequence[Sequence[Record]]) -> dict[str, float]:
    """Seconds a round by what was done, the mean over all rounds; "other" is what was not measured apart.

    Old records call them phases, or have none: they get a single one, "round".
    """
    total: dict[str, float] = defaultdict(float)
    rounds = 0
    for rows in records:
        for record in rows:
            seconds = record.get("seconds")
            if seconds is None:
                continue
            rounds += 1
            timings = record.get("timings") or record.get("phases") or {"round": seconds}
            for name, time in timings.items():
                total[name] += time
            total[_OTHER] += max(0.0, seconds - sum(timings.values()))
    whole = sum(total.values())
    if total.get(_OTHER, 0.0) < 0.01 * whole:
        total.pop(_OTHER, None)
    return {name: float(f"{time / rounds:.4g}") for name, time in total.items()}
