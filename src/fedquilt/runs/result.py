"""result.json: what a run came to, over its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.errors import FedquiltError
from fedquilt.runs.atomic import plain

_CONFIG_KEYS = ("method", "dataset", "partition", "clients", "rounds")
_SEED_KEYS = (
    "seed",
    "best_round",
    "val",
    "test",
    "seconds",
    "seconds_per_round",
    "upload_bytes",
    "download_bytes",
)


def build_result(config: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The content of result.json from the run's config and its seeds' summaries.

    `val` and `test` of a seed are those of its best validation round, in percent; `upload_bytes` and
    `download_bytes` are totals over its rounds and clients. `test_std` is the population's, over seeds. A
    mean over seeds of which one has no value is null. The metric's name comes from the summaries where they
    have it, as the config may leave the choice to the dataset.
    """
    if not summaries:
        raise FedquiltError("A result needs at least one finished seed.")
    for key in _CONFIG_KEYS:
        if key not in config:
            raise FedquiltError(f"The run's config has no '{key}'.")
    metric = summaries[0].get("metric") or config.get("metric")
    if not metric:
        raise FedquiltError("The run's config has no 'metric'.")
    seeds = []
    for summary in summaries:
        missing = [key for key in _SEED_KEYS if key not in summary]
        if missing:
            raise FedquiltError(f"The summary of seed {summary.get('seed', '?')} has no '{missing[0]}'.")
        seeds.append(plain({key: summary[key] for key in _SEED_KEYS}))
    tests = [seed["test"] for seed in seeds]
    has_tests = None not in tests
    vals = [seed["val"] for seed in seeds]
    return {
        **plain({key: config[key] for key in _CONFIG_KEYS}),
        "metric": str(metric),
        "test_mean": statistics.fmean(tests) if has_tests else None,
        "test_std": statistics.pstdev(tests) if has_tests else None,
        "val_mean": statistics.fmean(vals) if None not in vals else None,
        "seeds": seeds,
    }
