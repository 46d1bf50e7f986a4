"""The synthetic graphs of FED-PUB's Figures 1 and 3."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.datasets.entries.communities import communities_1, communities_3
from fedquilt.datasets.load import load_graph
from support.graphs import assert_same


def test_a_seed_gives_one_graph() -> None:
    for name, make in [("communities-1", communities_1), ("communities-3", communities_3)]:
        assert_same(load_graph(name)[0], make(0))
        other = load_graph(f"{name}:seed=1")[0]
        assert not np.array_equal(other.edges, make(0).edges)


@pytest.mark.parametrize(
    ("make", "sizes", "inside", "between"),
    [(communities_1, (5, 5, 40), 0.5, 0.1), (communities_3, (5, 15), 0.7, 0.01)],
)
def test_communities_are_the_papers(make, sizes: tuple[int, ...], inside: float, between: float) -> None:
    graph = make()
    community = np.repeat(np.arange(len(sizes)), np.array(sizes) * 30)
    counts = np.bincount(community)
    assert graph.nodes == 30 * sum(sizes)
    assert graph.classes == len(sizes)
    same = (community[graph.edges[0]] == community[graph.edges[1]]).sum()
    pairs = (counts * (counts - 1) // 2).sum()
    others = graph.nodes * (graph.nodes - 1) // 2 - pairs
    assert same / pairs == pytest.approx(inside, abs=0.01)
    assert (graph.edges.shape[1] - same) / others == pytest.approx(between, abs=0.01)
    for one in range(len(sizes)):
        assert np.bincount(graph.y[community == one]).argmax() == one


def test_the_graph_never_changes() -> None:
    """The recorded sum of the edges' ends, and of the features."""
    recorded = {
        "communities-1": (688506220, -6682.223),
        "communities-3": (54639973, 1318.062),
    }
    for name, (edges, features) in recorded.items():
        graph = load_graph(name)[0]
        assert int(graph.edges.sum()) == edges
        assert float(graph.x.sum(dtype=np.float64)) == pytest.approx(features, abs=1e-2)
