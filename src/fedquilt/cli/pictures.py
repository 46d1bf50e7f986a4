"""Which figures a run or a comparison gets, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.cli.reading import RunSoFar

if TYPE_CHECKING:
    import numpy as np

BEST = -1  # the key under which the best round's similarity is kept
_MOST_LABELS = 30
_MOST_SMALL_LABELS = 12  # on each of several matrices


def draw_run(run: RunSoFar, into: Path, suffix: str = ".png") -> list[Path]:
    """The figures of one run: convergence, clients, and similarity where the method has one."""
    into.mkdir(parents=True, exist_ok=True)
    convergence = draw_convergence([run], into / f"convergence{suffix}")
    return convergence + draw_clients(run, into / f"clients{suffix}") + draw_similarity(run, into, suffix)


def draw_clients(run: RunSoFar, path: Path) -> list[Path]:
    """A bar a client: the mean over seeds, or the first seed where seeds do not have the same number of clients."""
    from fedquilt.reports.figures import client_bars

    if run.result is None:
        return []
    seed, tests = next(iter(run.clients_test)), list(run.clients_test.values())
    heading = ""
    if len({len(test) for test in tests}) > 1:
        heading, tests = f"Seed {seed}; each seed has clients of its own", tests[:1]
    client_bars(tests, path, metric=run.result["metric"], label=title(run.method), title=heading)
    return [path]


def draw_convergence(runs: Sequence[RunSoFar], path: Path) -> list[Path]:
    """Validation and test against the round, a line a run; nothing where no round was evaluated yet."""
    from fedquilt.reports.figures import convergence_figure
    from fedquilt.reports.style import save_figure, styled

    begun = [run for run in runs if run.result is not None]
    if not begun:
        return []
    last = max(record["round"] for run in begun for records in run.records.values() for record in records)
    curves = {title(run.method): [_stretched(rows, last) for rows in run.records.values() if rows] for run in begun}
    figure = convergence_figure(curves, (begun[0].result or {})["metric"])
    key = figure.axes[0].get_legend()
    if key is not None:  # Below the axes: inside them, a level line such as majority's may run through it.
        key.remove()
        with styled():
            figure.legend(handles=key.legend_handles, loc="outside lower right", ncols=3)
    save_figure(figure, path)
    return [path]


def draw_similarity(run: RunSoFar, into: Path, suffix: str = ".png") -> list[Path]:
    """Who resembles whom in the first finished seed: at the best round, and as it grew over the rounds."""
    import numpy as np

    from fedquilt.reports.figures import heatmap_figure, similarity_rounds
    from fedquilt.reports.findings import factors_figure
    from fedquilt.reports.style import save_figure, styled
    from fedquilt.runs.folder import RunFolder

    folder = RunFolder.open(run.folder)
    for seed in run.config["seeds"]:
        place = folder.seed(seed)
        arrays = place.load_arrays("similarity")
        if not arrays:
            continue
        matrices = {int(name): array for name, array in arrays.items()}
        order, groups = arrange(run.config, place.load_arrays("split-and-partition"))
        paths = []
        if BEST in matrices:
            best = matrices.pop(BEST)
            order = np.arange(best.shape[-1]) if order is None else order
            draw = heatmap_figure if best.ndim == 2 else factors_figure
            figure = draw(best[..., order[:, None], order], f"{title(run.method)}, seed {seed}", groups)
            with styled():
                _label_clients(figure, order)
            paths.append(into / f"similarity{suffix}")
            save_figure(figure, paths[-1])
        if matrices:
            # A matrix for each latent factor would be too many: their mean.
            means = {number: matrix if matrix.ndim == 2 else matrix.mean(0) for number, matrix in matrices.items()}
            order = np.arange(len(next(iter(means.values())))) if order is None else order
            grown = {number: matrix[np.ix_(order, order)] for number, matrix in means.items()}
            paths.append(into / f"similarity-rounds{suffix}")
            similarity_rounds(grown, paths[-1], f"{title(run.method)}, seed {seed}")
        return paths
    return []


def arrange(config: dict[str, Any], cut: dict[str, np.ndarray] | None) -> tuple[np.ndarray | None, list[int] | None]:
    """In which order to draw the clients, and the group of each then, where groups are known.

    Where several clients in a row share a part of the graph (overlapping), the part is the group; held-out clients keep their
    numbers in the partition. Otherwise, where the dataset has groups of nodes (the families of patchwork), clients are ordered
    by the group that most of their nodes belong to.
    """
    if cut is None:
        return None, None
    import numpy as np

    from fedquilt.datasets.catalogue import node_groups
    from fedquilt.partition.source import clients_per_part

    clients = len(cut["sizes"])
    shared = clients_per_part(config["partition"])
    if shared > 1:
        numbers = cut.get("numbers", np.arange(clients))[:clients]
        return None, (numbers // shared).tolist()
    groups = node_groups(str(config["dataset"]))
    if groups is None:
        return None, None
    held, owner = groups[cut["nodes"]], np.repeat(np.arange(clients), cut["sizes"])
    most = np.array([np.bincount(held[owner == client]).argmax() for client in range(clients)])
    order = np.argsort(most, kind="stable")
    return order, most[order].tolist()


def title(method: str) -> str:
    """A method's name as papers write it."""
    from fedquilt.methods.base import methods

    known = methods()
    return known[method].title if method in known else method


def _stretched(records: list[dict[str, Any]], last: int) -> list[dict[str, Any]]:
    """A method that needs one round only as a level line beside the others."""
    return [records[0], {**records[0], "round": last}] if len(records) == 1 and last > 0 else records


def _label_clients(figure: Any, order: np.ndarray) -> None:
    """Name the clients on the axes where they are not in their own order."""
    if (order[1:] > order[:-1]).all():
        return
    matrices = [axes for axes in figure.axes if axes.get_images()]
    few = len(order) <= (_MOST_LABELS if len(matrices) == 1 else _MOST_SMALL_LABELS)
    for axes in matrices:
        for setter in (axes.set_xticks, axes.set_yticks):
            setter(range(len(order)) if few else [], [str(client) for client in order] if few else [])
