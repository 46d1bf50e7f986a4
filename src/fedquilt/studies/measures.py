"""What is read off a run: the values that a study's table can show."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedquilt.partition.statistics import label_distances, statistics
from fedquilt.runs.finished import Run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.training.loop import BEST

_AT = re.compile(r"test@(\d+)")
_BYTES = 4  # of a float32


def measure_run(experiment: ResolvedRun, run: Run) -> dict[str, float | None]:
    """The values of a run with one seed; `test@R`, the test metric after R rounds, is read off its records later.

    test, val           in percent, at the best validation round; best_round counts from 1
    test.GROUP          test of a group of clients, where there are any: honest and malicious, trained and new
    seconds             a round
    upload_mb, download_mb   10^6 bytes a client and round
    cost                bytes both ways, in percent of sending all entries of the personal model both ways as float32
    model_size          percent of the personal model's entries that are not zero; sparsity is 100 minus that
    label_correlation   Pearson's, between how alike clients' labels are (1 - Jensen-Shannon distance) and the similarity that
                        the method finds at the best round, over pairs of clients; where the method compares clients
    """
    (seed,) = run.result["seeds"]
    (models,) = run.models.values()
    (records,) = run.records.values()
    clients = experiment.context(experiment.config.seeds[0]).clients
    sent = sum(clients if record["participants"] == "all" else len(record["participants"]) for record in records)
    entries = sum(tensor[0].numel() for tensor in models.values())
    some = sum(int((tensor != 0).sum()) for tensor in models.values())
    up, down = seed["upload_bytes"], seed["download_bytes"]
    size = 100 * some / (entries * clients) if entries else math.nan
    values: dict[str, float | None] = {
        "test": seed["test"],
        "val": seed["val"],
        "best_round": seed["best_round"] + 1,
        "seconds": seed["seconds_per_round"],
        "upload_mb": up / sent / 1e6,
        "download_mb": down / sent / 1e6,
        "cost": 100 * (up + down) / (2 * _BYTES * entries * sent) if entries else math.nan,
        "model_size": size,
        "sparsity": 100 - size,
        "label_correlation": _label_correlation(experiment, run),
    }
    values |= {f"test.{name}": group["test"] for name, group in seed.get("groups", {}).items()}
    return {name: _known(value) for name, value in values.items()}


def measure_at(name: str, records: Sequence[dict[str, Any]]) -> float | None:
    """`test@R`: the test metric after R rounds; None for other names, and where that round was not evaluated."""
    if at := _AT.fullmatch(name):
        return next((record.get("test") for record in records if record["round"] + 1 == int(at[1])), None)
    return None


def measure_partition(experiment: ResolvedRun, seed: int) -> dict[str, float | None]:
    """What a cut is like, means over clients; edges count twice, as in FED-PUB's Table 4.

    missing_edges: in percent of the graph's edges, those that no client holds.
    """
    partition, _ = experiment.cut(seed)
    found = statistics(experiment.graph, partition)
    return {
        "classes": float(experiment.graph.classes),
        "nodes": float(found.nodes.mean()),
        "edges": 2 * float(found.edges.mean()),
        "clustering": float(found.clustering.mean()),
        "heterogeneity": None if partition.clients == 1 else _known(found.heterogeneity),
        "missing_edges": 100 * found.missing / found.graph_edges if found.graph_edges else None,
    }


def _label_correlation(experiment: ResolvedRun, run: Run) -> float | None:
    ((seed, similarities),) = run.similarities.items()
    partition, _ = experiment.cut(seed)
    found = similarities.get(BEST)
    if found is None or found.shape[-1] != partition.clients:  # some clients may be held out
        return None
    found = found.mean(0) if found.ndim == 3 else found
    alike = 1 - label_distances(experiment.graph, partition)
    pairs = np.triu_indices(len(found), 1)
    mine, theirs = found[pairs], alike[pairs]
    sound = np.isfinite(mine) & np.isfinite(theirs)
    if sound.sum() < 2 or mine[sound].std() == 0 or theirs[sound].std() == 0:
        return None
    return float(np.corrcoef(mine[sound], theirs[sound])[0, 1])


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
