"""The values that a study can show, measured on a run or on a partition."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedquilt.methods.settings import resolve_settings
from fedquilt.partition.neighbours import client_homophily, neighbour_distance, node_homophily
from fedquilt.partition.statistics import label_correlation, label_distances, statistics
from fedquilt.runs.finished import Run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.scenarios.link_inference import infer_links
from fedquilt.training.plan import BEST

_AT = re.compile(r"(test|val|diagnostic\.\w+)@(\d+)")
_DIAGNOSTIC = "diagnostic."
_BYTES = 4  # of a float32
_MOST_CLASSES, _MOST_CLIENTS = 10, 1000  # with more, clients are not compared by class, or with each other


def measure_run(resolved: ResolvedRun, run: Run) -> dict[str, float | None]:
    """The values of a run with one seed, by name. `measure_at` has those of any round: `test@R`, `val@R`, `diagnostic.NAME@R`.

    test, val           in percent, at the best validation round; best_round counts from 1
    test.GROUP          test of a group of clients, where the run has groups: honest and malicious; trained, new, and new
                        without training (with the model as the server sent it)
    seconds             per round
    upload_mb, download_mb   10^6 bytes per client and round
    cost                bytes both ways, in percent of sending all entries of the personal model both ways as float32
    model_size          percent of the personal model's entries that are not zero; sparsity is 100 minus that
    label_correlation   Pearson correlation over pairs of clients, between the similarity of their labels (1 - Jensen-Shannon
                        distance) and the similarity that the method finds at the best round; None where it finds none
    label_correlation@R the same after R rounds, for the rounds of `SIMILARITY_ROUNDS`
    diagnostic.NAME     a number of `Method.diagnostics` at the best round
    test.class.K        test of the clients most of whose nodes have label K, in a natural partition (FED-PUB's Figure 1)
    shared.alike, shared.unlike   percent of the entries that one of two clients keeps which both keep, for the two whose labels
                        are most alike, and most unlike (FED-PUB's masks, appendix C.4); of methods that prune
    """
    (seed,) = run.result["seeds"]
    (models,) = run.models.values()
    (records,) = run.records.values()
    clients = resolved.context(resolved.config.seeds[0]).clients
    sent = sum(clients if record["participants"] == "all" else len(record["participants"]) for record in records)
    entries = sum(tensor[0].numel() for tensor in models.values())
    nonzero = sum(int((tensor != 0).sum()) for tensor in models.values())
    up, down = seed["upload_bytes"], seed["download_bytes"]
    size = 100 * nonzero / (entries * clients) if entries else math.nan
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
    }
    values |= _label_correlations(resolved, run)
    best = next(record for record in records if record["round"] == seed["best_round"])
    values |= {_DIAGNOSTIC + name: value for name, value in best.get("diagnostics", {}).items()}
    values |= {f"test.{name}": group["test"] for name, group in seed.get("groups", {}).items()}
    values |= _by_leading_class(resolved, best.get("clients", {}).get("test", []))
    if getattr(resolved.settings, "threshold", 0):
        values |= _shared_entries(resolved, models)
    return {name: _or_none(value) for name, value in values.items()}


def measure_at(name: str, records: Sequence[dict[str, Any]]) -> float | None:
    """A value after R rounds: `test@R`, `val@R`, `diagnostic.NAME@R`; None for other names, and where the round has none."""
    at = _AT.fullmatch(name)
    record = next((record for record in records if at and record["round"] + 1 == int(at[2])), None)
    if at is None or record is None:
        return None
    value: float | None
    if at[1].startswith(_DIAGNOSTIC):
        value = record.get("diagnostics", {}).get(at[1].removeprefix(_DIAGNOSTIC))
    else:
        value = record.get(at[1])
    return value


def measure_partition(resolved: ResolvedRun, seed: int) -> dict[str, float | None]:
    """Statistics of a partition, means over clients, by name; edges count twice, as in FED-PUB's Table 4.

    missing_edges        edges that no client holds, in percent of the graph's edges
    homophily            mean share of a node's neighbours that have its label; graph_homophily is that of the whole graph
                         (FedHERO's Table 7)
    neighbour_distance   how differently two clients' nodes of one class are joined, 0 to 1 (FedHERO's Figures 6 and 7)
    """
    partition, _ = resolved.cut(seed)
    found = statistics(resolved.graph, partition)
    return {
        "classes": float(resolved.graph.classes),
        "nodes": float(found.nodes.mean()),
        "edges": 2 * float(found.edges.mean()),
        "clustering": float(found.clustering.mean()),
        "heterogeneity": None if partition.clients == 1 else _or_none(found.heterogeneity),
        "missing_edges": 100 * found.missing / found.graph_edges if found.graph_edges else None,
        "homophily": _mean_known(client_homophily(resolved.graph, partition)),
        "graph_homophily": _or_none(node_homophily(resolved.graph)),
        "neighbour_distance": _or_none(neighbour_distance(resolved.graph, partition)),
    }


def measure_links(resolved: ResolvedRun, run: Run) -> dict[str, float | None]:
    """Accuracy and area under the curve (`.auc`) of link inference on the models of a run, see `scenarios.link_inference`."""
    (seed,) = resolved.config.seeds
    context = resolved.context(seed)
    method = resolved.method(*resolve_settings(resolved.method, context, resolved.config.settings, context.epochs))
    models = {name: tensor.cpu() for name, tensor in run.models[seed].items()}
    guesses = infer_links(method, models, resolved.clients(seed)[: context.clients], seed)
    values = {f"links.{view}": guess.accuracy for view, guess in guesses.items()}
    values |= {f"links.{view}.auc": guess.auc for view, guess in guesses.items()}
    return {name: _or_none(value) for name, value in values.items()}


def _by_leading_class(resolved: ResolvedRun, tests: Sequence[float | None]) -> dict[str, float | None]:
    """`test.class.K` of the clients of a natural partition, by their most common label."""
    partition, _ = resolved.cut(resolved.config.seeds[0])
    if (
        resolved.config.partition != "natural"
        or len(tests) != partition.clients
        or resolved.graph.classes > _MOST_CLASSES
    ):
        return {}
    found: dict[str, list[float]] = {}
    for nodes, test in zip(partition.nodes, tests, strict=True):
        labels = resolved.graph.y[nodes]
        counts = np.bincount(labels[labels >= 0], minlength=1)
        if test is not None and counts.sum():
            found.setdefault(f"test.class.{counts.argmax()}", []).append(test)
    return {name: float(np.mean(values)) for name, values in sorted(found.items())}


def _shared_entries(resolved: ResolvedRun, models: Mapping[str, Any]) -> dict[str, float | None]:
    """`shared.alike` and `shared.unlike` of personal models [M, ...]."""
    partition, _ = resolved.cut(resolved.config.seeds[0])
    if (
        any(len(tensor) != partition.clients for tensor in models.values())
        or not 1 < partition.clients <= _MOST_CLIENTS
    ):
        return {}
    apart = label_distances(resolved.graph, partition)
    pairs = list(zip(*np.triu_indices(partition.clients, 1), strict=True))
    ordered = sorted(pairs, key=lambda pair: (apart[pair], pair))
    values: dict[str, float | None] = {}
    for name, (one, other) in (("alike", ordered[0]), ("unlike", ordered[-1])):
        kept = [(tensor[one] != 0, tensor[other] != 0) for tensor in models.values()]
        both, either = (sum(int(one_of(a, b).sum()) for a, b in kept) for one_of in (operator.and_, operator.or_))
        values[f"shared.{name}"] = 100 * both / either if either else None
    return values


def _label_correlations(resolved: ResolvedRun, run: Run) -> dict[str, float | None]:
    """`label_correlation` of the best round, and `label_correlation@R` of the others that are stored."""
    ((seed, similarities),) = run.similarities.items()
    partition, _ = resolved.cut(seed)
    values: dict[str, float | None] = {"label_correlation": None}
    # Some clients may be held out; then the similarity is of fewer than the partition has.
    found = {round: s for round, s in similarities.items() if s.shape[-1] == partition.clients}
    if found:
        distances = label_distances(resolved.graph, partition)
        for round, similarity in found.items():
            name = "label_correlation" if round == BEST else f"label_correlation@{round + 1}"
            values[name] = label_correlation(similarity, distances)
    return values


def _mean_known(values: np.ndarray) -> float | None:
    """The mean of those that are not NaN; None where all are."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
