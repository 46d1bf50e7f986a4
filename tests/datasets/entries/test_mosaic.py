"""The graph of any size."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.datasets.catalogue import natural_clients
from fedquilt.datasets.entries.mosaic import mosaic
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from support.graphs import assert_same


def test_a_seed_gives_one_graph() -> None:
    for name, make in [("mosaic", mosaic)]:
        assert_same(load_graph(name)[0], make(0))
        other = load_graph(f"{name}:seed=1")[0]
        assert not np.array_equal(other.edges, make(0).edges)


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


def test_clients_of_a_mosaic_may_be_larger() -> None:
    assert np.bincount(natural_clients("mosaic:nodes=1234,client=500")).tolist() == [500, 500, 234]
    assert_same(load_graph("mosaic:nodes=1234,client=500")[0], load_graph("mosaic:nodes=1234")[0])
    with pytest.raises(FedquiltError, match="clients with at least one node"):
        load_graph("mosaic:client=0")
