"""Which figures a run or a comparison gets, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.datasets.catalogue import node_groups
from fedquilt.partition.source import clients_per_part
from fedquilt.partition.statistics import label_correlation, share_distances
from fedquilt.reports import figures, findings
from fedquilt.reports.names import method_title
from fedquilt.reports.read_run import BEST, Record, StoredRun, StoredSeed
from fedquilt.reports.style import save_figure, styled
from fedquilt.runs.result import CLIENT_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_LABELS = 30  # clients named on the axes of one matrix
_MAX_LABELS_SMALL = 12  # the same on each of several small matrices


def draw_run(run: StoredRun, into: Path, suffix: str = ".png") -> list[Path]:
    """The figures of one run: convergence, clients, and diagnostics and similarity where the method has some."""
    into.mkdir(parents=True, exist_ok=True)
    return [
        *draw_convergence([run], into / f"convergence{suffix}"),
        *draw_clients(run, into / f"clients{suffix}"),
        *draw_diagnostics(run, into / f"diagnostics{suffix}"),
        *draw_similarity(run, into, suffix),
    ]


def draw_diagnostics(run: StoredRun, path: Path) -> list[Path]:
    """What shows whether the mechanism acts, against the round; no figure where the method has nothing of the kind.

    The numbers of `Method.diagnostics`, and how the similarity between clients that the server finds correlates with that of
    their labels, at the rounds whose similarities are stored.
    """
    seeds = []
    for seed in run.seeds:
        correlations = _label_correlations(seed)
        seeds.append(
            [
                {"round": record["round"], **record.get("diagnostics", {}), **correlations.get(record["round"], {})}
                for record in seed.records
            ]
        )
    if not any(len(record) > 1 for records in seeds for record in records):
        return []
    save_figure(figures.diagnostics_figure(seeds, method_title(run.method)), path)
    return [path]


def _label_correlations(seed: StoredSeed) -> dict[int, dict[str, float | None]]:
    """By round, the entry `correlation_with_labels`; nothing where no similarity is stored or the task has no classes."""
    similarities = seed.folder.load_arrays("similarity") or {}
    counts = (seed.folder.load_arrays("split-and-partition") or {}).get("class_counts")
    if counts is None or not similarities:
        return {}
    distances = share_distances(counts / np.maximum(counts.sum(1, keepdims=True), 1))
    return {
        int(round): {"correlation_with_labels": label_correlation(np.asarray(similarity, dtype=float), distances)}
        for round, similarity in similarities.items()
        if int(round) != BEST and similarity.shape[-1] == len(counts)
    }


def draw_clients(run: StoredRun, path: Path) -> list[Path]:
    """A bar for each client: the mean over seeds, or the first seed where seeds differ in their number of clients."""
    if run.result is None:
        return []
    tests = [seed.summary["clients_test"] for seed in run.seeds if seed.summary is not None]
    heading = ""
    if len({len(test) for test in tests}) > 1:
        heading, tests = f"Seed {run.evaluated[0].seed}; each seed has clients of its own", tests[:1]
    labels = {"metric": run.result["metric"], "label": method_title(run.method), "title": heading}
    figures.client_bars(tests, path, names=client_names_of(run, len(tests[0])), **labels)
    return [path]


def client_names_of(run: StoredRun, clients: int) -> list[str] | None:
    """The names of a run's clients where they have names, the same ones in every seed that is shown."""
    found = [seed.summary.get(CLIENT_NAMES) for seed in run.seeds if seed.summary is not None]
    first = found[0] if found else None
    known = isinstance(first, list) and len(first) == clients and all(names == first for names in found)
    return [str(name) for name in first] if known and first else None


def draw_convergence(runs: Sequence[StoredRun], path: Path) -> list[Path]:
    """Validation and test against the round, a line for each run; no figure before the first evaluation."""
    results = [(run, run.result) for run in runs]
    evaluated = [(run, result) for run, result in results if result is not None]
    if not evaluated:
        return []
    last = max(record["round"] for run, _ in evaluated for seed in run.seeds for record in seed.records)
    curves = {
        method_title(run.method): [_level(seed.records, last) for seed in run.seeds if seed.records]
        for run, _ in evaluated
    }
    figure = figures.convergence_figure(curves, evaluated[0][1]["metric"])
    legend = figure.axes[0].get_legend()
    if legend is not None:  # Below the axes: inside them, a level line such as majority's may run through it.
        legend.remove()
        with styled():
            figure.legend(handles=legend.legend_handles, loc="outside lower right", ncols=3)
    save_figure(figure, path)
    return [path]


def draw_similarity(run: StoredRun, into: Path, suffix: str = ".png") -> list[Path]:
    """The client similarities of the first seed that has any: at the best round, and over the rounds."""
    for seed in run.seeds:
        arrays = seed.folder.load_arrays("similarity")
        if arrays:
            matrices = {int(name): array for name, array in arrays.items()}
            return _draw_similarity_of(run, seed, matrices, into, suffix)
    return []


def _draw_similarity_of(
    run: StoredRun, seed: StoredSeed, matrices: dict[int, np.ndarray], into: Path, suffix: str
) -> list[Path]:
    """`matrices` are [M, M], or [K, M, M] with a matrix for each latent factor, by round."""
    clients = next(iter(matrices.values())).shape[-1]
    order, groups = client_order(run.config, seed.folder.load_arrays("split-and-partition"))
    order = np.arange(clients) if order is None else order
    heading = f"{method_title(run.method)}, seed {seed.seed}"
    paths = []
    if BEST in matrices:
        best = matrices.pop(BEST)
        draw = figures.heatmap_figure if best.ndim == 2 else findings.factors_figure
        figure = draw(best[..., order[:, None], order], heading, groups)
        with styled():
            _label_clients(figure, order, (seed.summary or {}).get(CLIENT_NAMES))
        paths.append(into / f"similarity{suffix}")
        save_figure(figure, paths[-1])
    if matrices:
        # A matrix for each latent factor would be too many, so their mean is drawn.
        means = {number: matrix if matrix.ndim == 2 else matrix.mean(0) for number, matrix in matrices.items()}
        sorted_means = {number: matrix[np.ix_(order, order)] for number, matrix in means.items()}
        paths.append(into / f"similarity-rounds{suffix}")
        figures.similarity_rounds(sorted_means, paths[-1], heading)
    return paths


def client_order(
    config: dict[str, Any], cut: dict[str, np.ndarray] | None
) -> tuple[np.ndarray | None, list[int] | None]:
    """The order in which to draw the clients (None: their own), and each one's group in that order where it is known.

    Where several clients in a row share a part of the graph (overlapping), the part is the group; held-out clients keep their
    numbers in the partition. Otherwise, where the dataset has groups of nodes (the families of patchwork), clients are ordered
    by the group that most of their nodes belong to.
    """
    if cut is None:
        return None, None
    clients = len(cut["sizes"])
    shared = clients_per_part(config["partition"])
    if shared > 1:
        numbers = cut.get("numbers", np.arange(clients))[:clients]
        return None, (numbers // shared).tolist()
    groups = node_groups(str(config["dataset"]))
    if groups is None:
        return None, None
    held, owner = groups[cut["nodes"]], np.repeat(np.arange(clients), cut["sizes"])
    main_group = np.array([np.bincount(held[owner == client]).argmax() for client in range(clients)])
    order = np.argsort(main_group, kind="stable")
    return order, main_group[order].tolist()


def _level(records: list[Record], last: int) -> list[Record]:
    """A single record repeated at round `last`, so that a method of one round is a level line; else the records."""
    return [records[0], {**records[0], "round": last}] if len(records) == 1 and last > 0 else records


def _label_clients(figure: Figure, order: np.ndarray, names: list[str] | None = None) -> None:
    """Name the clients on the axes where they have names, or are not in their own order."""
    named = names is not None and len(names) == len(order)
    if (order[1:] > order[:-1]).all() and not named:
        return
    labels = [figures.shortened_name(names[client], 14) if named and names else str(client) for client in order]
    matrices = [axes for axes in figure.axes if axes.get_images()]
    few = len(order) <= (_MAX_LABELS if len(matrices) == 1 else _MAX_LABELS_SMALL)
    for axes in matrices:
        axes.set_xticks(range(len(order)) if few else [], labels if few else [], **figures.tilted(labels))
        axes.set_yticks(range(len(order)) if few else [], labels if few else [])
