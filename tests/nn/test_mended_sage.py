"""GraphSAGE over a mended graph is GraphSAGE over the graph with the generated nodes written into it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.split import NONE
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.mended_sage import mended_sage, multiply_each
from fedquilt.nn.models import Sage, common_start
from fedquilt.nn.neighbour_generator import Generated
from support.clients import assert_near, dense_features
from support.federations import CLASSES, FEATURES, ragged_clients

MOST, CODE, HIDDEN = 3, 4, 6
CPU = torch.device("cpu")


def drawn(cohort: Cohort) -> tuple[Generated, torch.Tensor]:
    stream = torch.Generator().manual_seed(2)
    count = torch.arange(cohort.rows).float() % (MOST + 1)
    codes = torch.randn(cohort.rows, MOST, CODE, generator=stream)
    codes = torch.where((torch.arange(MOST) < count.unsqueeze(1)).unsqueeze(2), codes, 0.0)
    return Generated(codes, count), torch.randn(cohort.clients, CODE, FEATURES, generator=stream)


def written_out(cohort: Cohort, m: int, made: Generated, basis: torch.Tensor) -> Client:
    """The client with its generated neighbours as nodes."""
    client, first = cohort.members[m], int(cohort.start[m])
    n = client.graph.nodes
    edges, x = [client.graph.edges], [dense_features(client)]
    for node in range(n):
        for p in range(int(made.count[first + node])):
            edges.append(np.array([[node], [n]]))
            x.append((made.codes[first + node, p] @ basis[m]).numpy()[None])
            n += 1
    more = n - client.graph.nodes
    joined = np.concatenate(edges, axis=1)
    graph = replace(
        client.graph,
        edges=joined[:, np.lexsort((joined[1], joined[0]))],
        x=np.concatenate(x).astype(np.float32),
        y=np.concatenate([client.graph.y, np.full(more, -1)]),
    )
    return Client(client.id, graph, np.concatenate([client.split, np.full(more, NONE, dtype=np.int8)]))


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(20, 18, 19), (25, 6, 31)], ids=["padded", "ragged"])
def test_it_is_graphsage_on_the_larger_graph(sizes: tuple[int, ...], depth: int) -> None:
    cohort = Cohort(ragged_clients(sizes))
    model = Sage(FEATURES, HIDDEN, CLASSES, depth)
    weights = common_start(model.shapes(), 4, 3, CPU)
    stream = torch.Generator().manual_seed(9)
    weights = {name: w + 0.2 * torch.randn(w.shape, generator=stream) for name, w in weights.items()}
    made, basis = drawn(cohort)
    found = mended_sage(cohort, weights, made, basis, depth)
    for m, client in enumerate(cohort.members):
        larger = Cohort([written_out(cohort, m, made, basis)])
        expected = model(larger, {name: w[m : m + 1] for name, w in weights.items()}).logits
        mine = slice(int(cohort.start[m]), int(cohort.start[m]) + client.graph.nodes)
        assert_near(found[mine], expected[: client.graph.nodes], 1e-5)
    calm = Dropout(0.0, torch.zeros(3, dtype=torch.int64), 0)
    at = mended_sage(cohort, weights, made, basis, depth, calm, training=True)
    assert_near(at[cohort.training.real], found[cohort.train], 1e-5)


@pytest.mark.parametrize("depth", [2, 3])
def test_dropout_draws_the_same_at_training_nodes_and_everywhere(depth: int) -> None:
    cohort = Cohort(ragged_clients((20, 18, 19)))
    model = Sage(FEATURES, HIDDEN, CLASSES, depth)
    weights = common_start(model.shapes(), 4, 3, CPU)
    made, basis = drawn(cohort)
    dropout = Dropout(0.5, torch.arange(3), 7)
    whole = mended_sage(cohort, weights, made, basis, depth, dropout)
    at = mended_sage(cohort, weights, made, basis, depth, dropout, training=True)
    assert_near(at[cohort.training.real], whole[cohort.train], 1e-5)
    assert float((whole - mended_sage(cohort, weights, made, basis, depth)).abs().max()) > 0.01


@pytest.mark.parametrize("sizes", [(20, 18, 19), (25, 6, 31)], ids=["padded", "ragged"])
def test_products_of_stacks(sizes: tuple[int, ...]) -> None:
    cohort = Cohort(ragged_clients(sizes))
    assert (cohort.length is None) == (sizes[1] == 6)
    stacks, weight = torch.randn(cohort.rows, 3, 4), torch.randn(3, 4, 5)
    found = multiply_each(cohort, stacks, weight)
    assert_near(found, torch.stack([cohort.multiply(stacks[:, p], weight) for p in range(3)], dim=1))
