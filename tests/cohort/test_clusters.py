"""A client's clusters: every step has training nodes, an epoch goes once through all nodes, parts of a graph are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedquilt.cohort.client import Client
from fedquilt.cohort.clusters import A_STEP, Clusters, clusters_of
from fedquilt.graphs.split import NONE, TRAIN
from support.federations import ragged_clients

SIZES = [(60, 15), (60, 7), (31, 30), (12, 40)]


def large(nodes: int, weighted: bool = False, sparse: bool = False) -> Client:
    client = ragged_clients((nodes,), sparse)[0]
    weights = np.random.default_rng(1).random(client.graph.edges.shape[1]).astype(np.float32) + 0.5
    return replace(client, graph=replace(client.graph, edge_weights=weights)) if weighted else client


def neighbours(client: Client) -> np.ndarray:
    a = np.zeros((client.graph.nodes, client.graph.nodes), dtype=bool)
    u, v = client.graph.edges
    a[u, v] = a[v, u] = True
    return a


@pytest.mark.parametrize(("nodes", "step"), SIZES)
def test_an_epoch_goes_once_through_all_nodes(nodes: int, step: int) -> None:
    clusters = Clusters(large(nodes), step)
    assert clusters.parts == clusters.steps == -(-nodes // step)
    dealt = [clusters.nodes_of(cards) for cards in clusters.cards(0, 3)]
    assert np.array_equal(np.sort(np.concatenate(dealt)), np.arange(nodes))
    for some in dealt:
        assert (clusters.client.split[some] == TRAIN).any()
        assert (np.diff(some) > 0).all()
    parts = [clusters.part(number) for number in range(clusters.parts)]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(nodes))


def test_what_is_dealt_depends_on_seed_client_and_epoch() -> None:
    clusters = Clusters(large(60), 15)

    def dealt(of: Clusters, seed: int, epoch: int) -> list[list[int]]:
        return [of.nodes_of(cards).tolist() for cards in of.cards(seed, epoch)]

    assert dealt(clusters, 0, 0) == dealt(Clusters(large(60), 15), 0, 0)
    other = Clusters(replace(large(60), id=1), 15)
    assert len({str(one) for one in (dealt(clusters, 0, 0), dealt(clusters, 0, 1), dealt(clusters, 1, 0))}) == 3
    assert dealt(other, 0, 0) != dealt(clusters, 0, 0)


def test_where_few_clusters_have_training_nodes_there_are_fewer_steps() -> None:
    client = large(60)
    split = np.full(60, NONE, dtype=np.int8)
    split[:2] = TRAIN
    clusters = Clusters(replace(client, split=split), 6)
    assert clusters.parts == 10
    assert clusters.steps == clusters.trains.sum() <= 2
    dealt = clusters.cards(0, 0)
    assert len(dealt) == clusters.steps
    assert max(len(cards) for cards in dealt) <= A_STEP
    assert all((split[clusters.nodes_of(cards)] == TRAIN).any() for cards in dealt)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_induced_part_has_the_edges_among_its_nodes(weighted: bool, sparse: bool) -> None:
    client = large(40, weighted, sparse)
    nodes = np.array([0, 3, 4, 9, 17, 18, 25, 39])
    part = Clusters(client, 10).induced(nodes)
    expected = client.graph.subgraph(nodes)
    assert np.array_equal(part.graph.edges, expected.edges)
    assert np.array_equal(_dense(part), client.graph.x[nodes].toarray() if sparse else client.graph.x[nodes])
    assert np.array_equal(part.graph.y, client.graph.y[nodes])
    assert np.array_equal(part.split, client.split[nodes])
    assert part.id == client.id
    if weighted:  # relative to the mean over the whole graph
        assert part.edge_weights is not None
        u, v = client.graph.edges
        inside = np.isin(u, nodes) & np.isin(v, nodes)
        assert np.array_equal(part.edge_weights, client.edge_weights[inside])


@pytest.mark.parametrize("weighted", [False, True])
def test_surroundings_have_all_edges_of_the_inner_nodes(weighted: bool) -> None:
    client = large(40, weighted)
    nodes = np.array([0, 3, 4, 9, 17])
    part, numbers, inner = Clusters(client, 10).surroundings(nodes)
    a = neighbours(client)
    expected = np.flatnonzero(a[nodes].any(0) | np.isin(np.arange(40), nodes))
    assert np.array_equal(numbers, expected)
    assert np.array_equal(numbers[inner], nodes)
    found = neighbours(part)
    assert np.array_equal(found[inner], a[nodes][:, numbers])
    outer = np.setdiff1d(np.arange(len(numbers)), inner)
    assert not found[np.ix_(outer, outer)].any()
    u, v = part.graph.edges
    assert (u < v).all()
    assert len(set(zip(u.tolist(), v.tolist(), strict=True))) == u.size
    if weighted:
        known = {(int(s), int(t)): w for s, t, w in zip(*client.graph.edges, client.edge_weights, strict=True)}
        assert part.edge_weights is not None
        assert all(
            known[int(numbers[s]), int(numbers[t])] == w for s, t, w in zip(u, v, part.edge_weights, strict=True)
        )


def test_a_graph_that_fits_is_one_part() -> None:
    client = large(12)
    clusters = clusters_of(client, 12)
    assert clusters is clusters_of(client, 12)
    assert clusters.parts == clusters.steps == 1
    assert clusters.induced(np.arange(12)) is client
    assert clusters.surroundings(clusters.part(0))[0] is client


def _dense(client: Client) -> np.ndarray:
    x = client.graph.x
    return x if isinstance(x, np.ndarray) else x.toarray()
