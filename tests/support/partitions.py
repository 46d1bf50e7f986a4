"""Small graphs for the partition tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from fedquilt.graphs.graph import Graph
from fedquilt.partition.partition import Partition


def make_graph(edges: np.ndarray, nodes: int, *, y: np.ndarray | None = None, name: str = "toy") -> Graph:
    labels = np.arange(nodes) % 3 if y is None else y
    classes = int(labels.max(initial=0)) + 1
    return Graph(name=name, edges=edges, x=np.ones((nodes, 1), np.float32), y=labels, classes=classes)


def random_graph(nodes: int, share: float = 0.1, seed: int = 0, name: str = "toy") -> Graph:
    draws = np.random.default_rng(seed).random((nodes, nodes))
    edges = np.stack(np.nonzero(np.triu(draws < share, 1))).astype(np.int64)
    return make_graph(edges, nodes, name=name)


def cliques(*sizes: int, name: str = "cliques") -> Graph:
    """Complete graphs of these sizes, side by side."""
    starts = np.cumsum([0, *sizes])
    edges = [np.stack(np.triu_indices(size, 1)) + start for size, start in zip(sizes, starts, strict=False)]
    return make_graph(np.concatenate(edges, axis=1).astype(np.int64), int(starts[-1]), name=name)


def loose_communities() -> Graph:
    """Eight loosely tied communities of 60 nodes, and ten of 10."""
    base = cliques(*[60] * 8, *[10] * 10)
    rng = np.random.default_rng(0)
    ties = np.sort(rng.integers(base.nodes, size=(2, 60)), axis=0)
    edges = np.unique(np.concatenate([base.edges, ties[:, ties[0] < ties[1]]], axis=1), axis=1)
    return Graph("communities", edges, base.x, base.y, base.classes)


@st.composite
def graphs(draw: st.DrawFn, least: int = 1, most: int = 40) -> Graph:
    """Any small graph: sparse, dense, without edges, in pieces."""
    nodes = draw(st.integers(least, most))
    share = draw(st.sampled_from([0.0, 0.05, 0.2, 0.6, 1.0]))
    return random_graph(nodes, share, draw(st.integers(0, 1000)))


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def largest_component(path: Path) -> Graph:
    with np.load(path, allow_pickle=False) as data:
        edges, y = data["edge_index"].astype(np.int64), data["y"].astype(np.int64)
    graph = make_graph(edges, len(y), y=y, name=path.stem)
    _, labels = sp.csgraph.connected_components(graph.adjacency(), directed=False)
    return graph.subgraph(np.flatnonzero(labels == np.bincount(labels).argmax()))


def covers_once(partition: Partition) -> bool:
    """Whether each node of the graph belongs to exactly one client."""
    return np.array_equal(np.sort(partition.flat()[0]), np.arange(partition.total))


def well_formed(partition: Partition) -> bool:
    """Whether each client has nodes, sorted and distinct."""
    return all(held.size and held.dtype == np.int64 and (np.diff(held) > 0).all() for held in partition.nodes)
