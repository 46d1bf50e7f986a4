"""The graphs that need no file."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.datasets.load import load_graph
from fedquilt.datasets.synthetic import (
    GENERATORS,
    communities_1,
    communities_3,
    mosaic,
    natural_clients,
    patchwork,
    patchwork_communities,
)
from fedquilt.errors import FedquiltError
from support.graphs import assert_same


@pytest.mark.parametrize("name", list(GENERATORS))
def test_a_seed_gives_one_graph(name: str) -> None:
    assert_same(load_graph(name)[0], GENERATORS[name](0))
    other = load_graph(f"{name}:seed=1")[0]
    assert not np.array_equal(other.edges, GENERATORS[name](0).edges)


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


def test_natural_clients() -> None:
    for name, clients, nodes in (
        ("patchwork", 10, 140),
        ("communities-1", 50, 30),
        ("communities-3:seed=4", 20, 30),
    ):
        client = natural_clients(name)
        assert np.bincount(client).tolist() == [nodes] * clients
        assert len(client) == load_graph(name)[0].nodes
    for repetition in ("", ",r=3"):
        assert np.array_equal(natural_clients(f"syn-cora:h=all{repetition}"), np.repeat(np.arange(11), 1490))
    for name in ("cora", "syn-cora", "syn-cora:h=1.00"):
        assert natural_clients(name) is None
    assert natural_clients("somebody's own") is None


def test_a_mosaic_has_the_size_that_was_named() -> None:
    graph, protocol = load_graph("mosaic:nodes=1234,degree=6,features=5,classes=3,seed=2")
    assert (graph.nodes, graph.features, graph.classes) == (1234, 5, 3)
    assert graph.x.dtype == np.float32
    assert protocol.split == (0.2, 0.4, 0.4)
    assert 5.0 < 2 * graph.edges.shape[1] / graph.nodes <= 6.0
    assert_same(graph, mosaic(2, 1234, 6, 5, 3))
    piece = natural_clients("mosaic:nodes=1234")
    assert np.bincount(piece).tolist() == [100] * 12 + [34]
    u, v = graph.edges
    assert 0.6 < (piece[u] == piece[v]).mean() < 0.75
    assert (graph.y[u] == graph.y[v]).mean() > 0.45


def test_features_of_a_mosaic_tell_the_class() -> None:
    graph = mosaic(nodes=3000, features=32, classes=4)
    centres = np.stack([graph.x[graph.y == label].mean(axis=0) for label in range(4)])
    nearest = ((graph.x[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == graph.y).mean() > 0.9


@pytest.mark.parametrize("name", ["mosaic:nodes=1", "mosaic:nodes=3,classes=1,features=1", "mosaic:nodes=250,degree=0"])
def test_the_smallest_mosaics(name: str) -> None:
    graph = load_graph(name)[0]
    assert graph.nodes == len(natural_clients(name))


@pytest.mark.parametrize("parameter", ["nodes", "features", "classes"])
def test_a_mosaic_of_nothing_is_refused(parameter: str) -> None:
    with pytest.raises(FedquiltError, match="at least one node, one feature and one class"):
        load_graph(f"mosaic:{parameter}=0")


def test_the_older_graphs_are_what_they_were() -> None:
    """The sum of the edges' positions, and of the features, of each: noted before `mosaic` came."""
    noted = {
        "patchwork": (3785197, 12581.0),
        "patchwork:seed=3": (3749153, 12587.0),
        "communities-1": (688506220, -6682.223),
        "communities-3": (54639973, 1318.062),
    }
    for name, (edges, features) in noted.items():
        graph = load_graph(name)[0]
        assert int(graph.edges.sum()) == edges
        assert float(graph.x.sum(dtype=np.float64)) == pytest.approx(features, abs=1e-2)
