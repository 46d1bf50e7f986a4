"""Routing by the products of vectors that meet at a node assigns edges as routing by vectors does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.graphs.graph import Graph
from fedquilt.nn import meetings as module
from fedquilt.nn import routing
from fedquilt.nn.edges import Edges
from fedquilt.nn.meetings import Meetings, meetings
from fedquilt.nn.routing import mix, route, unit
from support.clients import PADDING, assert_near, lay, numbers, random_client


def grid(number: int, height: int, width: int) -> Client:
    """Nodes in a rectangle, joined to those beside, above and across, and one more that is alone."""
    place = np.arange(height * width).reshape(height, width)
    steps = [(place[:, :-1], place[:, 1:]), (place[:-1], place[1:]), (place[:-1, :-1], place[1:, 1:])]
    edges = np.stack([np.concatenate([step[side].ravel() for step in steps]) for side in (0, 1)])
    nodes = height * width + 1
    graph = Graph("grid", edges, np.ones((nodes, 1), np.float32), np.zeros(nodes, np.int64), 1)
    return Client(number, graph, np.zeros(nodes, np.int8))


def weighted(client: Client, seed: int) -> Client:
    weights = np.random.default_rng(seed).uniform(0.2, 3.0, client.graph.edges.shape[1]).astype(np.float32)
    return Client(client.id, replace(client.graph, edge_weights=weights), client.split)


def vectors(rows: int, factors: int, width: int) -> Tensor:
    """Of length one, some of them zero."""
    z = unit(numbers(0, factors * rows, width))
    z[::7] = 0.0
    return z


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize(("factors", "iterations", "temperature"), [(1, 3, 1.0), (3, 1, 1.0), (3, 2, 1.0), (4, 6, 0.3)])
def test_assignments_are_those_of_vectors(
    factors: int, iterations: int, temperature: float, rows: str, weights: bool
) -> None:
    clients = [grid(0, 4, 5), random_client(np.random.default_rng(1), 1, 17, edges=0.2), grid(2, 1, 2)]
    if weights:
        clients = [weighted(client, m) for m, client in enumerate(clients)]
    cohort = lay(clients, rows)
    edges = Edges(cohort, factors)
    assert (edges.weight is None) != weights
    z = vectors(cohort.rows, factors, 5)
    found = Meetings(edges, factors).assignments(z, iterations, temperature)
    assert_near(found, routing._by_vectors(edges, z, factors, iterations, temperature), 2e-5)


@pytest.mark.parametrize("weights", [False, True])
def test_routing_is_the_same_by_either(weights: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its gradients, in parts and as a whole."""
    clients = [grid(m, 3, 4 + m) for m in range(3)]
    cohort = lay([weighted(client, 0) for client in clients] if weights else clients)
    monkeypatch.setattr(module, "MOST", 100)
    found = []
    for many, cached in ((10, 2**19), (1, 2**19), (1, 16 * 3 * 8)):
        monkeypatch.setattr(routing, "MANY", many)
        monkeypatch.setattr(routing, "CACHED", cached)
        edges = Edges(cohort, 3)
        z = numbers(1, 3, cohort.rows, 5).requires_grad_()
        out = route(edges, z, 5)
        (out * numbers(2, *out.shape)).sum().backward()
        found.append((out.detach(), z.grad))
        assert len(edges.parts(max(1, cached // 15))) == (3 if cached < 2**19 else 1)
        made = [part.edges.once("meetings", lambda edges: None) for part in edges.parts(max(1, cached // 15))]
        assert all((each is None) == (many == 10) for each in made)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert_near(one, two, 2e-5)


def test_few_iterations_and_nodes_with_many_neighbours_are_routed_by_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    star = Graph("star", np.array([[0] * 40, range(1, 41)]), np.ones((41, 1), np.float32), np.zeros(41, np.int64), 1)
    cohort = lay([Client(0, star, np.zeros(41, np.int8))])
    assert meetings(Edges(cohort, 2), 2) is None
    empty = lay([random_client(np.random.default_rng(0), 0, 5, edges=0.0)])
    assert meetings(Edges(empty, 2), 2) is None
    alike = lay([grid(0, 6, 6)])
    assert meetings(Edges(alike, 2), 2) is not None
    monkeypatch.setattr(module, "Meetings", None)  # would fail
    for iterations in (1, 2, 3):
        mix(Edges(alike, 2), unit(numbers(0, 2, alike.rows, 4)), iterations)
    with pytest.raises(TypeError):
        mix(Edges(alike, 2), unit(numbers(0, 2, alike.rows, 4)), routing.MANY)


def test_memory_is_that_of_edges_times_factors() -> None:
    """Products of pairs and their places, for each edge and factor."""
    edges = Edges(lay([grid(0, 20, 20)]), 4)
    made = meetings(edges, 4)
    assert made is not None
    assert made._index.numel() <= 12 * edges.count // 4
    assert made._pairs.count <= 6 * edges.count
