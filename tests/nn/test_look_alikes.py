"""Look-alikes: which are chosen, which nodes they join, and layers over the expanded graph, each against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.nn import layers, look_alikes
from fedquilt.nn.look_alikes import Joined, choose_look_alikes, degrees, expanded_gcn, expanded_sage, join
from support.clients import assert_near
from support.federations import ragged_clients

CLIENTS = ragged_clients((12, 9, 14))
WIDTH = 5


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-12))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("chunk", [1, 100, look_alikes.CHUNK])
def test_the_nearest_of_others_are_chosen(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_alikes, "CHUNK", chunk)
    known = random(4, 6, WIDTH)
    known[1, 4:] = 0.0  # padding
    others, owners = known.flatten(0, 1), torch.arange(24) // 6
    receivers = torch.tensor([1, 3, 0])
    chosen, found, nearest = choose_look_alikes(known[receivers], receivers, others, owners, 5, 0.6)
    for row, m in enumerate(receivers.tolist()):
        alike = np.array(
            [
                [-1.0 if owners[p] == m else cosine(own.numpy(), others[p].numpy()) for p in range(24)]
                for own in known[m]
            ]
        )
        assert_near(nearest[row], torch.from_numpy(alike.max(1)))
        order = [p for p in np.argsort(-alike.max(0)) if alike[:, p].max() > 0.6][:5]
        assert int(found[row]) == len(order)
        expected = torch.zeros(5, WIDTH)
        expected[: len(order)] = others[order]
        assert_near(chosen[row], expected)
    assert int(found.min()) > 0


def test_nodes_are_joined_to_the_nearest_above_the_threshold() -> None:
    cohort = Cohort(CLIENTS)
    z, bank = random(cohort.rows, WIDTH), random(3, 7, WIDTH, seed=1)
    bank[:, 6] = 0.0
    joined = join(cohort, z, bank, 2, 0.5)
    counts = set()
    for row in cohort.taken.tolist():
        own = bank[cohort.client[row]]
        alike = [cosine(z[row].numpy(), other.numpy()) for other in own]
        near = [b for b in np.argsort(-np.array(alike)) if alike[b] > 0.5][:2]
        assert int(joined.count[row]) == len(near)
        assert_near(joined.total[row], torch.relu(own[near]).sum(0))
        counts.add(len(near))
    assert counts == {0, 1, 2}


def expanded(cohort: Cohort, h: torch.Tensor) -> Joined:
    count = torch.arange(cohort.rows).float() % 4
    return Joined(count, count.unsqueeze(1) * random(*h.shape, seed=5).abs())


def adjacency(client, strengths: bool) -> np.ndarray:
    a = np.zeros((client.graph.nodes, client.graph.nodes))
    u, v = client.graph.edges
    a[u, v] = a[v, u] = client.edge_weights if strengths else 1.0
    return a


def test_degrees_are_sums_of_edges() -> None:
    cohort = Cohort(CLIENTS)
    for found, client in zip(cohort.parts_of(degrees(cohort)), CLIENTS, strict=True):
        assert found.tolist() == adjacency(client, False).sum(1).tolist()


def test_an_expanded_convolution_is_one_over_the_larger_graph() -> None:
    cohort = Cohort(CLIENTS)
    h = random(cohort.rows, WIDTH).abs()
    weight, bias, more = random(3, WIDTH, 4, seed=2), random(3, 4, seed=3), expanded(cohort, h)
    found = expanded_gcn(cohort, h, more, weight, bias)
    for m, client in enumerate(CLIENTS):
        mine = slice(cohort.start[m], cohort.start[m] + client.graph.nodes)
        a = adjacency(client, False) + np.eye(client.graph.nodes)
        count, total = more.count[mine].numpy(), more.total[mine].numpy()
        degree = a.sum(1) + count
        mixed = a / np.sqrt(np.outer(degree, degree)) @ h[mine].numpy() + total / degree[:, None]
        assert_near(found[mine], torch.from_numpy(mixed @ weight[m].numpy() + bias[m].numpy()))
    at = expanded_gcn(cohort, h, more, weight, bias, training=True)
    assert_near(at[cohort.training.real], found[cohort.train])


def test_an_expanded_graphsage_layer_is_one_over_the_larger_graph() -> None:
    cohort = Cohort(CLIENTS)
    h = random(cohort.rows, WIDTH).abs()
    weight, root, bias = random(3, WIDTH, 4, seed=2), random(3, WIDTH, 4, seed=4), random(3, 4, seed=3)
    more = expanded(cohort, h)
    found = expanded_sage(cohort, h, more, weight, root, bias)
    for m, client in enumerate(CLIENTS):
        mine = slice(cohort.start[m], cohort.start[m] + client.graph.nodes)
        a = adjacency(client, False)
        count, total = more.count[mine].numpy(), more.total[mine].numpy()
        mean = (a @ h[mine].numpy() + total) / np.maximum(a.sum(1) + count, 1.0)[:, None]
        expected = mean @ weight[m].numpy() + h[mine].numpy() @ root[m].numpy() + bias[m].numpy()
        assert_near(found[mine], torch.from_numpy(expected))
    at = expanded_sage(cohort, h, more, weight, root, bias, training=True)
    assert_near(at[cohort.training.real], found[cohort.train])


def test_without_look_alikes_layers_are_the_usual_ones() -> None:
    cohort = Cohort(CLIENTS)
    h = random(cohort.rows, WIDTH)
    weight, root, bias = random(3, WIDTH, 4, seed=2), random(3, WIDTH, 4, seed=4), random(3, 4, seed=3)
    none = Joined(torch.zeros(cohort.rows), torch.zeros_like(h))
    rows = torch.from_numpy(cohort.taken)
    assert_near(expanded_gcn(cohort, h, none, weight, bias)[rows], layers.gcn(cohort, h, weight, bias)[rows])
    usual = layers.sage(cohort, h, weight, root, bias)
    assert_near(expanded_sage(cohort, h, none, weight, root, bias)[rows], usual[rows])
