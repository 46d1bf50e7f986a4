"""The default dataset."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.datasets.catalogue import natural_clients, node_groups
from fedquilt.datasets.entries.patchwork import patchwork, patchwork_communities
from fedquilt.datasets.load import load_graph
from support.graphs import assert_same


def test_a_seed_gives_one_graph() -> None:
    for name, make in [("patchwork", patchwork)]:
        assert_same(load_graph(name)[0], make(0))
        other = load_graph(f"{name}:seed=1")[0]
        assert not np.array_equal(other.edges, make(0).edges)


def test_patchwork_has_communities_in_families() -> None:
    graph = patchwork()
    community, family = patchwork_communities()
    assert graph.nodes == len(community) == len(family)
    u, v = graph.edges
    inside = (community[u] == community[v]).mean()
    related = (family[u] == family[v]).mean()
    assert 0.7 < inside < related < 0.99
    assert set(graph.y) == set(range(6))
    assert graph.sparse
    assert set(np.unique(graph.x.data)) == {1.0}

    mix = np.array([np.bincount(graph.y[community == one], minlength=6) for one in range(10)]) / 240
    distance = np.abs(mix[:, None] - mix[None]).sum(axis=2)
    of = np.array([family[community == one][0] for one in range(10)])
    alike = of[:, None] == of[None]
    assert distance[alike & ~np.eye(10, dtype=bool)].mean() < 0.7 * distance[~alike].mean()


def test_families_of_patchwork_contradict_each_other() -> None:
    graph = patchwork()
    _, family = patchwork_communities()
    x = graph.x.toarray()
    usual = np.array([[x[(graph.y == label) & (family == one)].mean(axis=0) for label in range(6)] for one in range(3)])
    nearest = (usual[0] @ usual[1].T - usual[1].mean(axis=1)).argmax(axis=1)
    assert (nearest != np.arange(6)).all()


def test_communities_are_the_natural_clients_and_families_the_groups() -> None:
    community, family = patchwork_communities()
    assert np.array_equal(natural_clients("patchwork"), community)
    assert np.array_equal(node_groups("patchwork:seed=3"), family)
    assert np.bincount(community).tolist() == [140] * 10


def test_the_graph_never_changes() -> None:
    """The recorded sum of the edges' ends, and of the features."""
    recorded = {
        "patchwork": (3785197, 12581.0),
        "patchwork:seed=3": (3749153, 12587.0),
    }
    for name, (edges, features) in recorded.items():
        graph = load_graph(name)[0]
        assert int(graph.edges.sum()) == edges
        assert float(graph.x.sum(dtype=np.float64)) == pytest.approx(features, abs=1e-2)
