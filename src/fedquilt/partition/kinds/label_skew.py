"""label-skew: clients of equal size whose classes are drawn from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.dirichlet import ALPHA, ALPHA_OPTION, log_dirichlet
from fedquilt.partition.kind import Drawn, register_kind


@register_kind(
    "label-skew",
    "clients of equal size, each with its own mix of classes from Dir(alpha p); small alpha: few classes a client",
    options=[ALPHA_OPTION],
    min_train=1,
)
def label_skew(graph: Graph, clients: int, seed: int, alpha: float = ALPHA) -> Drawn:
    """Hsu, Qi and Brown (2019): client m's mix of classes is q_m ~ Dir(alpha p), p the shares of the classes in the graph.

    In random order, each client draws as many labelled nodes as the others by its mix; where a class has no nodes left, by its
    mix of the other classes. So all nodes are dealt, and sizes differ by one at most. Nodes without a label are dealt evenly.
    Edges are not looked at, as in `random`: most of them join two clients and are lost.
    """
    if graph.numbers is not None or graph.classes < 2:
        raise FedquiltError(
            f"{graph.name} has no classes that clients could have unequal shares of; choose another partition."
        )
    rng = numpy_stream(seed, "partition", "label-skew")
    counts = np.bincount(graph.y[graph.y >= 0], minlength=graph.classes)
    there = np.flatnonzero(counts)
    left = [rng.permutation(np.flatnonzero(graph.y == one)) for one in there]
    mixes = log_dirichlet(rng, np.tile(alpha * counts[there] / counts.sum(), (clients, 1)))
    sizes = np.full(clients, counts.sum() // clients)
    sizes[: counts.sum() % clients] += 1
    held: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for client in rng.permutation(clients):
        for one, taken in enumerate(
            _taken(rng, mixes[client], np.array([len(nodes) for nodes in left]), sizes[client])
        ):
            held[client].append(left[one][:taken])
            left[one] = left[one][taken:]
    unlabelled = np.array_split(rng.permutation(np.flatnonzero(graph.y < 0)), clients)
    # From the other end, so that all sizes together differ by one at most.
    return [np.concatenate([*own, more]) for own, more in zip(held, reversed(unlabelled), strict=True)], {
        "alpha": alpha
    }


def _taken(rng: np.random.Generator, log_mix: np.ndarray, left: np.ndarray, size: int) -> np.ndarray:
    """[C] how many nodes of each class a client draws by its mix, no more than are left; `size` in all."""
    taken = np.zeros_like(left)
    while taken.sum() < size:
        open_ = taken < left
        mix = np.where(open_, log_mix, -np.inf)
        shares = np.exp(mix - mix.max())
        taken = np.minimum(taken + rng.multinomial(size - taken.sum(), shares / shares.sum()), left)
    return taken
