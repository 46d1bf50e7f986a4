"""Models on a pseudo graph: as on a cohort of clients that all have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TRAIN
from fedquilt.nn.models import Model, common_start
from fedquilt.nn.pseudo_graph import PseudoGraph, PseudoNodes, generate, generator_shapes, nearest, sameness
from support.clients import assert_near, numbers

NODES, WIDTH, CLASSES, MODELS = 9, 4, 3, 3


def pseudo(k: int = 2) -> PseudoNodes:
    x = numbers(5, NODES, WIDTH)
    return PseudoNodes(x, nearest(x, k))


def as_client(nodes: PseudoNodes, number: int) -> Client:
    edges = np.stack(np.nonzero(np.triu(nodes.adjacency.numpy()))).astype(np.int64)
    y = np.zeros(NODES, dtype=np.int64)
    graph = Graph("pseudo", edges, nodes.x.features.numpy(), y, CLASSES)
    return Client(number, graph, np.full(NODES, TRAIN, dtype=np.int8))


def test_a_node_is_joined_with_those_that_are_most_alike() -> None:
    x = numbers(5, NODES, WIDTH).double()
    found = nearest(x, 2)
    cosine = (x @ x.T / torch.outer(x.norm(dim=1), x.norm(dim=1))).numpy()
    np.fill_diagonal(cosine, -np.inf)
    expected = np.zeros((NODES, NODES))
    for i, row in enumerate(cosine):
        expected[i, np.argsort(row)[-2:]] = 1.0
    np.testing.assert_array_equal(found, np.maximum(expected, expected.T))


@pytest.mark.parametrize("kind", sorted(Model.kinds))
def test_networks_compute_what_they_do_on_a_cohort(kind: str) -> None:
    nodes = pseudo()
    model = Model.kinds[kind](WIDTH, 8, CLASSES)
    start = common_start(model.shapes(), 0, MODELS, torch.device("cpu"))
    weights = {name: w + 0.3 * numbers(i, *w.shape) for i, (name, w) in enumerate(start.items())}
    graph = PseudoGraph(Rows([NODES] * MODELS, torch.device("cpu")), nodes)
    cohort = Cohort([as_client(nodes, m) for m in range(MODELS)])
    found = model(graph, weights).logits  # type: ignore[arg-type]
    assert_near(found, model(cohort, weights).logits, 1e-5)


def test_features_have_a_gradient_and_detached_ones_none() -> None:
    x = numbers(5, NODES, WIDTH).requires_grad_()
    nodes = PseudoNodes(x, nearest(x, 2))
    model = Model.kinds["gcn"](WIDTH, 8, CLASSES)
    weights = common_start(model.shapes(), 0, MODELS, torch.device("cpu"))
    rows = Rows([NODES] * MODELS, torch.device("cpu"))
    found = model(PseudoGraph(rows, nodes), weights).logits  # type: ignore[arg-type]
    (grad,) = torch.autograd.grad(found.square().sum(), x)
    assert grad.any(dim=1).all()
    calm = model(PseudoGraph(rows, nodes.detached()), weights).logits  # type: ignore[arg-type]
    assert not calm.requires_grad
    assert_near(calm, found.detach(), 1e-6)


def test_what_no_network_needs_is_not_there() -> None:
    with pytest.raises(AttributeError):
        _ = PseudoGraph(Rows([NODES], torch.device("cpu")), pseudo()).val


def test_the_generator_reads_class_and_noise() -> None:
    shapes = generator_shapes(5, CLASSES, WIDTH)
    w = {name: one[0] for name, one in common_start(shapes, 1, 1, torch.device("cpu")).items()}
    noise, labels = numbers(1, 6, 5), torch.eye(CLASSES).repeat(2, 1)
    h = np.hstack([labels.numpy() @ w["class"].numpy(), noise.numpy()])
    for layer in (1, 2, 3):
        h = np.tanh(h @ w[f"layer{layer}.weight"].numpy() + w[f"layer{layer}.bias"].numpy())
    expected = h @ w["layer4.weight"].numpy() + w["layer4.bias"].numpy()
    np.testing.assert_allclose(generate(w, noise, labels), expected, atol=1e-5)
    assert not torch.allclose(generate(w, noise, labels), generate(w, noise, labels.roll(1, 0)))


def plain_sameness(noise: Tensor, x: Tensor) -> float:
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            total += float((noise[i] - noise[j]).square().mean() * (x[i] - x[j]).square().mean().sqrt())
    return float(np.exp(-total / len(x) ** 2))


def test_sameness_is_one_where_all_nodes_are_the_same() -> None:
    noise, x = numbers(1, 6, 5), numbers(2, 6, WIDTH)
    assert float(sameness(noise, x)) == pytest.approx(plain_sameness(noise, x), rel=1e-4)
    same = x[:1].repeat(6, 1).requires_grad_()
    assert float(sameness(noise, same.detach())) == pytest.approx(1.0, abs=1e-4)
    (grad,) = torch.autograd.grad(sameness(noise, same), same)
    assert torch.isfinite(grad).all()
