"""Types of links: clustering, matching and convolutions, against loops over a dense client."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.link_types import (
    CENTROIDS,
    TypedGcn,
    assign,
    centre,
    cluster,
    first_centroids,
    links_of,
    matched,
    nodes_by_type,
    orders_of,
)
from fedquilt.nn.models import common_start
from support.clients import LAYOUTS, PADDING, assert_near, dense_features, lay, numbers, random_client

KINDS, WIDTH, OUTPUTS = 3, 4, 3


def clients(weights: bool = False) -> list[Client]:
    rng = np.random.default_rng(11)
    made = [random_client(rng, m, nodes=n) for m, n in enumerate((12, 9, 1))]
    if not weights:
        return made
    drawn = [rng.uniform(0.3, 3.0, client.graph.edges.shape[1]) for client in made[:2]]
    return [replace(c, graph=replace(c.graph, edge_weights=w)) for c, w in zip(made, drawn, strict=False)] + made[2:]


def plain_kinds(client: Client, h: np.ndarray, centroids: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """The type of each edge, and its vector in the direction that fits it better."""
    kinds, vectors = [], []
    for u, v in client.graph.edges.T:
        both = [np.concatenate([h[a], h[b]]) for a, b in ((u, v), (v, u))]
        cosine = [[e @ c / np.linalg.norm(c) for c in centroids] for e in both]
        kind = int(np.argmax(np.max(cosine, axis=0)))
        kinds.append(kind)
        vectors.append(both[int(cosine[1][kind] > cosine[0][kind])])
    return kinds, vectors


@pytest.mark.parametrize("rows", PADDING)
def test_one_step_of_clustering_is_that_of_a_loop(rows: str) -> None:
    cohort = lay(clients(), rows, "dense")
    h, centroids = numbers(1, cohort.rows, WIDTH), numbers(2, 3, KINDS, 2 * WIDTH)
    found = assign(cohort, h, centroids)
    moved, count = centre(cohort, h, found, centroids)
    links = links_of(cohort)
    pairs = {(int(u), int(v)): int(k) for u, v, k in zip(links.source, links.target, found.kind, strict=True)}
    for m, (client, own) in enumerate(zip(clients(), cohort.parts_of(h), strict=True)):
        kinds, vectors = plain_kinds(client, own.numpy(), centroids[m].numpy())
        first = int(cohort.start[m])
        for (u, v), kind in zip(client.graph.edges.T, kinds, strict=True):
            assert pairs[u + first, v + first] == pairs[v + first, u + first] == kind
        ends = [
            {int(n) for (u, v), k in zip(client.graph.edges.T, kinds, strict=True) if k == c for n in (u, v)}
            for c in range(KINDS)
        ]
        alone = client.graph.nodes - len(set().union(*ends))
        assert nodes_by_type(cohort, found, KINDS)[m].tolist() == [len(nodes) + alone for nodes in ends]
        for c in range(KINDS):
            chosen = [e for e, kind in zip(vectors, kinds, strict=True) if kind == c]
            assert int(count[m, c]) == len(chosen)
            expected = np.mean(chosen, axis=0) if chosen else centroids[m, c].numpy()
            np.testing.assert_allclose(moved[m, c], expected, atol=1e-5)


def test_types_do_not_depend_on_how_nodes_are_numbered() -> None:
    client = clients()[0]
    order = np.random.default_rng(5).permutation(client.graph.nodes)
    edges = np.sort(order[client.graph.edges], axis=0)
    edges = edges[:, np.lexsort(edges[::-1])]
    turned = replace(client, graph=replace(client.graph, edges=edges))
    h = numbers(1, client.graph.nodes, WIDTH)
    other = torch.empty_like(h)
    other[torch.from_numpy(order)] = h
    one, two = (first_centroids(Cohort([c]), x, KINDS) for c, x in ((client, h), (turned, other)))
    assert one[1].tolist() == two[1].tolist()
    _, centroids, alike = matched(two[0], one[0][0], orders_of(KINDS))
    assert_near(alike, torch.ones(1, KINDS), 1e-4)
    assert centroids.shape == (1, KINDS, 2 * WIDTH)


@pytest.mark.parametrize("rows", PADDING)
def test_clustering_finds_links_that_differ(rows: str) -> None:
    """Nodes of two kinds a and b: links are a-a, a-b and b-b, and clustering from the start tells them apart."""
    cohort = lay(clients(), rows, "dense")
    side = (torch.arange(cohort.rows) % 2).float()
    h = torch.stack([side, 1.0 - side], dim=1).repeat(1, 2) + 0.01 * numbers(3, cohort.rows, 4)
    centroids, count = first_centroids(cohort, h, 3)
    kind, links = assign(cohort, h, centroids).kind, links_of(cohort)
    for m in (0, 1):
        own = cohort.client[links.source] == m
        ends = side[links.source[own]] + side[links.target[own]]
        pairs = {(int(k), int(e)) for k, e in zip(kind[own], ends, strict=True)}
        assert len(pairs) == 3
    assert count[2].tolist() == [0.0] * 3  # a node alone has no links
    again, _ = cluster(cohort, h, centroids, 2)
    assert_near(again, centroids, 1e-6)


def test_the_best_of_all_pairings_is_taken_in_either_direction() -> None:
    common, sent = numbers(1, KINDS, 2 * WIDTH), numbers(2, 5, KINDS, 2 * WIDTH)
    order, centroids, alike = matched(sent, common, orders_of(KINDS))

    def cosine(e: Tensor, c: Tensor) -> float:
        both = (e, torch.cat([e[WIDTH:], e[:WIDTH]]))
        return max(float(x @ c / x.norm() / c.norm()) for x in both)

    for own, found, moved, near in zip(sent, order, centroids, alike, strict=True):
        best = max(permutations(range(KINDS)), key=lambda p: sum(cosine(own[i], common[j]) for j, i in enumerate(p)))
        assert tuple(found.tolist()) == best
        for j in range(KINDS):
            assert float(near[j]) == pytest.approx(cosine(own[best[j]], common[j]), abs=1e-5)
            assert float(moved[j] @ common[j] / moved[j].norm() / common[j].norm()) == pytest.approx(
                float(near[j]), abs=1e-5
            )


def plain_logits(client: Client, w: dict[str, Tensor], layers: int) -> Tensor:
    h = torch.from_numpy(dense_features(client)).double() @ w["projection.weight"] + w["projection.bias"]
    kinds, _ = plain_kinds(client, h.numpy(), w[CENTROIDS].numpy())
    weights = client.edge_weights if client.edge_weights is not None else np.ones(len(kinds))
    total = torch.zeros_like(h)
    for c in range(len(w[CENTROIDS])):
        a = torch.eye(client.graph.nodes, dtype=torch.float64)
        for (u, v), kind, weight in zip(client.graph.edges.T, kinds, weights, strict=True):
            a[u, v] = a[v, u] = float(weight) * (kind == c)
        a = a / torch.outer(a.sum(1), a.sum(1)).sqrt()
        z = h
        for layer in range(1, layers + 1):
            z = torch.relu(a @ z @ w[f"conv{layer}.weight"][c] + w[f"conv{layer}.bias"][c])
        total += z
    return total @ w["classifier.weight"] + w["classifier.bias"]


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize(("kinds", "layers", "weighted"), [(1, 2, False), (3, 1, False), (3, 2, True)])
def test_outputs_are_those_of_a_dense_client(rows: str, features: str, kinds: int, layers: int, weighted: bool) -> None:
    some = clients(weighted)
    net, cohort = TypedGcn(6, WIDTH, OUTPUTS, layers, kinds), lay(some, rows, features)
    start = common_start(net.shapes(), 1, 3, torch.device("cpu"))
    weights = {name: w + 0.3 * numbers(i, *w.shape) for i, (name, w) in enumerate(start.items())}
    found = net(cohort, weights).logits
    for m, (own, client) in enumerate(zip(cohort.parts_of(found), some, strict=True)):
        expected = plain_logits(client, {name: w[m].double() for name, w in weights.items()}, layers)
        assert_near(own, expected.float(), 1e-4)
    none = Dropout(0.0, torch.zeros(3, dtype=torch.int64), 0)
    assert_near(net.training(cohort, weights, none).logits[cohort.training.real], found[cohort.train], 1e-5)


def test_a_cohort_without_links_has_outputs() -> None:
    alone = [clients()[2]]
    net, cohort = TypedGcn(6, WIDTH, OUTPUTS, 2, KINDS), Cohort(alone)
    weights = common_start(net.shapes(), 1, 1, torch.device("cpu"))
    centroids, count = first_centroids(cohort, net.project(cohort, weights), KINDS)
    assert not centroids.any()
    assert not count.any()
    assert torch.isfinite(net(cohort, weights).logits).all()
