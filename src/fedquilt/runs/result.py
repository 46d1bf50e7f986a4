"""result.json: the metrics, bytes and seconds of a run, by seed and over its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.common.files import plain
from fedquilt.errors import FedquiltError

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
GROUPS, EPSILON, CLIENT_NAMES, FIGURES = "groups", "epsilon", "client_names", "figures"
# Of a seed, where it has them: the rounds that were done (fewer than planned after early stopping), and how it was trained
# again after it had diverged. Results of earlier versions lack them.
ROUNDS_RUN, RETRIED = "rounds_run", "retried"
_IF_KNOWN = (ROUNDS_RUN, RETRIED, EPSILON, GROUPS, CLIENT_NAMES)


def build_result(config: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The content of result.json from the run's config and its seeds' summaries.

    `val` and `test` of a seed are those of its best validation round, in percent; `upload_bytes` and
    `download_bytes` are totals over its rounds and clients. `test_std` is the population's, over seeds. A
    mean over seeds of which one has no value is null. The metric's name comes from the summaries where they
    have it, as the config may leave the choice to the dataset.

    A seed has `rounds_run`, the rounds that were done; `epsilon` where uploads are protected: the privacy budget spent by the
    client that sent most often; and `retried` where its training diverged and it was trained again with other settings: which.

    A seed has `client_names` where the clients have names: those of the clients that trained, in the order of their numbers.

    `figures` have every metric of the task on the test nodes, computed once with the models of the best validation round: the
    mean over the clients for which it is defined, for each seed, and mean and deviation over seeds.

    `groups` exist where clients are of several kinds (honest and malicious, trained and new). For each seed they hold the
    number of clients of a group and their mean test metric (see `group`); for the run, mean and deviation over seeds.
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
        seeds.append(plain({key: summary[key] for key in (*_SEED_KEYS, *_IF_KNOWN) if key in summary}))
        if summary.get(FIGURES):
            seeds[-1][FIGURES] = {name: figure["test"] for name, figure in summary[FIGURES].items()}
    vals = [seed["val"] for seed in seeds]
    result = {
        **plain({key: config[key] for key in _CONFIG_KEYS}),
        "metric": str(metric),
        **_spread([seed["test"] for seed in seeds]),
        "val_mean": statistics.fmean(vals) if None not in vals else None,
        "seeds": seeds,
    }
    if all(GROUPS in seed for seed in seeds):
        result[GROUPS] = {name: _group_over(seeds, name) for name in seeds[0][GROUPS]}
    if all(FIGURES in seed for seed in seeds):
        result[FIGURES] = {name: _spread([seed[FIGURES][name] for seed in seeds]) for name in seeds[0][FIGURES]}
    return result


def client_titles(seed: Mapping[str, Any], clients: int) -> list[str]:
    """What to call the clients of a seed, of which `seed` is the summary or the entry in a result: by name, else "client 3"."""
    names = seed.get(CLIENT_NAMES)
    if isinstance(names, list) and len(names) == clients:
        return list(map(str, names))
    return [f"client {m}" for m in range(clients)]


def group(tests: Sequence[float | None]) -> dict[str, Any]:
    """A group of clients in one seed: their number, and the mean of their defined test metrics."""
    known = [test for test in tests if test is not None]
    return {"clients": len(tests), "test": statistics.fmean(known) if known else None}


def _group_over(seeds: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    each = [seed[GROUPS][name] for seed in seeds]
    return {"clients": each[0]["clients"], **_spread([one["test"] for one in each])}


def _spread(tests: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and deviation; None where one of the values is."""
    known = [test for test in tests if test is not None]
    whole = len(known) == len(tests)
    return {
        "test_mean": statistics.fmean(known) if whole else None,
        "test_std": statistics.pstdev(known) if whole else None,
    }
