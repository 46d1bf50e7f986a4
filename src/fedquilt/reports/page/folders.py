"""What the charts need of a run, read from its folders."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.reports.page.condense import curve, holdings, similarity, thinned
from fedquilt.reports.page.data import PageRun, PageSeed, Similarity
from fedquilt.reports.page.rerun import command_of, facts_of
from fedquilt.runs.folder import RunFolder, SeedFolder

BEST = -1  # the key under which the best round's similarity is kept
_MOST_DOTS = 200
_OTHER = "other"

Record = dict[str, Any]


def read_page_run(
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], label: str, setting: str
) -> PageRun:
    """A run for the page, from its folder, or from several folders that hold seeds of the same run.

    `label` is what the charts call it, `setting` what it was trained on. A run that is not done is shown as far as it is.
    """
    paths = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    if not paths:
        raise FedquiltError(f"The run '{label}' has no folder to read.")
    opened = [RunFolder.open(Path(path)) for path in paths]
    configs = [folder.config for folder in opened]
    places = [
        (seed, folder.seed(seed))
        for folder, config in zip(opened, configs, strict=True)
        for seed in config.get("seeds", folder.seeds())
    ]
    records = [place.records() for _, place in places]
    seeds = [seed for seed, _ in places]
    first = configs[0]
    return PageRun(
        label=label,
        setting=setting,
        method=str(first.get("method", label)),
        metric=str(_metric(first, places)),
        curve=curve(records),
        seeds=tuple(_seed(seed, place, rows) for (seed, place), rows in zip(places, records, strict=True)),
        upload=_a_round(records, "bytes_up"),
        download=_a_round(records, "bytes_down"),
        phases=_phases(records),
        facts=facts_of(first, seeds),
        command=command_of(first, seeds),
    )


def _metric(config: Mapping[str, Any], places: Sequence[tuple[int, SeedFolder]]) -> str:
    said = ((place.summary or {}).get("metric") for _, place in places)
    return config.get("metric") or next((metric for metric in said if metric), "accuracy")


def _seed(seed: int, place: SeedFolder, records: Sequence[Record]) -> PageSeed:
    summary = place.summary or _so_far(records)
    best_round = summary.get("best_round")
    tests = summary.get("clients_test") or []
    clients = thinned([m for m, test in enumerate(tests) if test is not None], _MOST_DOTS, lambda m: tests[m])
    return PageSeed(
        seed=seed,
        best_round=best_round,
        clients=tuple(clients),
        tests=tuple(round(float(tests[m]), 2) for m in clients),
        similarities=_similarities(place, best_round),
        holdings=holdings(place.load_arrays("split-and-partition")),
    )


def _so_far(records: Sequence[Record]) -> dict[str, Any]:
    """The best round of a seed that is not done."""
    measured = [record for record in records if record.get("val") is not None]
    if not measured:
        return {}
    best = max(measured, key=lambda record: record["val"])
    return {"best_round": best["round"], "clients_test": best.get("clients", {}).get("test")}


def _similarities(place: SeedFolder, best_round: int | None) -> tuple[Similarity, ...]:
    """The matrices in the order of their rounds; the best round's stands where it belongs."""
    arrays = place.load_arrays("similarity") or {}
    found = []
    for name, array in arrays.items():
        number = int(name)
        best = number == BEST
        if not best and number == best_round and str(BEST) in arrays:
            continue  # the best round happens to be one of those noted anyway
        when = (best_round if best_round is not None else BEST) if best else number
        found.append(similarity(np.asarray(array, dtype=float), when, best))
    return tuple(sorted(found, key=lambda one: (one.round < 0, one.round, one.best)))


def _a_round(records: Sequence[Sequence[Record]], key: str) -> dict[str, float]:
    """Bytes a round by name: the mean over all rounds of all seeds, the largest first."""
    rounds = sum(map(len, records))
    total: dict[str, float] = defaultdict(float)
    for rows in records:
        for record in rows:
            for name, count in (record.get(key) or {}).items():
                total[name] += count
    means = {name: round(count / rounds, 1) for name, count in total.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _phases(records: Sequence[Sequence[Record]]) -> dict[str, float]:
    """Seconds a round by phase, the mean over all rounds; what no phase accounts for is "other".

    Records from before phases were kept have one, the round.
    """
    total: dict[str, float] = defaultdict(float)
    rounds = 0
    for rows in records:
        for record in rows:
            seconds = record.get("seconds")
            if seconds is None:
                continue
            rounds += 1
            phases = record.get("phases") or {"round": seconds}
            for name, time in phases.items():
                total[name] += time
            total[_OTHER] += max(0.0, seconds - sum(phases.values()))
    whole = sum(total.values())
    if total.get(_OTHER, 0.0) < 0.01 * whole:
        total.pop(_OTHER, None)
    return {name: float(f"{time / rounds:.4g}") for name, time in total.items()}
