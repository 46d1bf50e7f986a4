"""Each layer over a cohort equals PyTorch Geometric's layer run client by client, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.nn import layers
from support import pyg_reference as reference
from support.clients import LAYOUTS, PADDING, assert_near, client_lists, lay, random_client, with_training_nodes
from support.pyg_reference import Layer, Weights

Ours = Callable[[Cohort, Tensor, Weights], Tensor]
seeds = st.integers(0, 2**31)
# Attention's gradients cancel: PyTorch Geometric's own layer in float32 is 1e-5 away from itself in float64.
# So do those of a normalised layer.
TOLERANCE = {"gat1": 5e-5, "gat3": 5e-5, "gin": 1e-4}


def gat_shapes(inside: int, heads: int, out: int) -> dict[str, tuple[int, ...]]:
    wide = heads * out
    return {"weight": (inside, wide), "source": (heads, out), "target": (heads, out), "bias": (wide,)}


def shapes(kind: str, inside: int) -> dict[str, tuple[int, ...]]:
    if kind.startswith("gat"):
        return gat_shapes(inside, *((1, 4) if kind == "gat1" else (3, 2)))
    out: dict[str, tuple[int, ...]] = {"weight": (inside, 5), "bias": (5,)}
    if kind == "gin":
        return out | {"second.weight": (5, 5), "second.bias": (5,)}
    return out | ({"root": (inside, 5)} if kind == "sage" else {})


HIDDEN: dict[str, tuple[Ours, Layer]] = {
    "linear": (lambda c, h, w: layers.linear(c, h, **w), reference.linear),
    "gcn": (lambda c, h, w: layers.gcn(c, h, **w), reference.gcn),
    "sage": (lambda c, h, w: layers.sage(c, h, **w), reference.sage),
    "gin": (lambda c, h, w: layers.gin(c, h, *w.values()), reference.gin),
    "gat1": (lambda c, h, w: layers.gat(c, h, **w), reference.gat),
    "gat3": (lambda c, h, w: layers.gat(c, h, **w), reference.gat),
}
FIRST: dict[str, tuple[Callable[[Cohort, Weights], Tensor], Layer]] = {
    "linear": (lambda c, w: layers.linear(c, c.x, **w), reference.linear),
    "gcn": (lambda c, w: layers.gcn_first(c, **w), reference.gcn),
    "sage": (lambda c, w: layers.sage_first(c, **w), reference.sage),
    "gin": (lambda c, w: layers.gin_first(c, *w.values()), reference.gin),
    "gat1": (lambda c, w: layers.gat(c, c.x, **w), reference.gat),
    "gat3": (lambda c, w: layers.gat(c, c.x, **w), reference.gat),
}


def hard_clients() -> list[Client]:
    """One node; no edge; an isolated node beside a clique; CSR beside dense features; sizes far apart."""
    rng = np.random.default_rng(5)
    clients = [
        random_client(rng, 0, 1, sparse=True),
        random_client(rng, 1, 12, edges=0.0),
        random_client(rng, 2, 3, edges=1.0, filled=0.0, sparse=True),
        random_client(rng, 3, 16, edges=0.12),
    ]
    assert not clients[1].graph.edges.size
    return clients


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("kind", HIDDEN)
@example(clients=hard_clients(), seed=0)
@settings(max_examples=10)
@given(clients=client_lists(), seed=seeds)
def test_a_layer_on_hidden_rows_equals_pyg(kind: str, rows: str, clients: list[Client], seed: int) -> None:
    ours, theirs = HIDDEN[kind]
    near = partial(assert_near, tolerance=TOLERANCE.get(kind, 1e-5))
    cohort, inside = lay(clients, rows), 4
    weights = reference.leaves(reference.random_weights(shapes(kind, inside), len(clients), seed))
    # Padding rows of hidden layers are not zero in practice (a bias reaches them): they must not matter.
    h, parts = reference.random_rows(cohort, inside, seed + 1, fill=7.0)
    h.requires_grad_()
    out = ours(cohort, h, weights)
    pull, pulls = reference.random_rows(cohort, out.shape[1], seed + 2, fill=0.0)
    (out * pull).sum().backward()
    for m, client in enumerate(clients):
        own, mine = reference.of_client(weights, m), parts[m].double().requires_grad_()
        expected = theirs(client, mine, own)
        (expected * pulls[m]).sum().backward()
        near(cohort.parts_of(out.detach())[m], expected.detach())
        near(cohort.parts_of(h.grad)[m], mine.grad)
        for name, w in weights.items():
            near(w.grad[m], own[name].grad)


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize("kind", FIRST)
@example(clients=hard_clients(), seed=0)
@settings(max_examples=10)
@given(clients=client_lists(), seed=seeds)
def test_a_layer_on_the_features_equals_pyg(
    kind: str, rows: str, features: str, clients: list[Client], seed: int
) -> None:
    ours, theirs = FIRST[kind]
    near = partial(assert_near, tolerance=TOLERANCE.get(kind, 1e-5))
    cohort = lay(clients, rows, features)
    weights = reference.leaves(reference.random_weights(shapes(kind, clients[0].graph.features), len(clients), seed))
    out = ours(cohort, weights)
    pull, pulls = reference.random_rows(cohort, out.shape[1], seed + 2, fill=0.0)
    (out * pull).sum().backward()
    for m, client in enumerate(clients):
        own = reference.of_client(weights, m)
        expected = theirs(client, reference.features(client), own)
        (expected * pulls[m]).sum().backward()
        near(cohort.parts_of(out.detach())[m], expected.detach())
        for name, w in weights.items():
            near(w.grad[m], own[name].grad)


@pytest.mark.parametrize("counts", [(5, 5, 5), (0, 4, 1), (0, 0, 0, 0, 12)])
@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin"])
def test_a_layer_at_the_training_nodes_is_the_layer_there(kind: str, rows: str, counts: tuple[int, ...]) -> None:
    cohort = lay(with_training_nodes(counts), rows)
    weights = reference.random_weights(shapes(kind, 4), cohort.clients, 1)
    h, _ = reference.random_rows(cohort, 4, 2, fill=7.0)
    pull = torch.randn(len(cohort.train), 5, generator=torch.Generator().manual_seed(3))
    found = []
    for layer, chosen in (
        (getattr(layers, kind), cohort.train),
        (getattr(layers, f"{kind}_training"), cohort.training.real),
    ):
        leaves, mine = reference.leaves(weights), h.clone().requires_grad_()
        out = layer(cohort, mine, **{name.replace(".", "_"): w for name, w in leaves.items()})[chosen]
        grads = torch.autograd.grad((out * pull).sum(), [mine, *leaves.values()])
        found.append([out.detach(), *grads])
    for whole, part in zip(*found, strict=True):
        assert_near(part, whole)


@pytest.mark.parametrize("kind", HIDDEN)
def test_padding_rows_get_no_gradient(kind: str) -> None:
    cohort = lay(hard_clients(), "padded")
    weights = reference.random_weights(shapes(kind, 4), cohort.clients, 1)
    h, _ = reference.random_rows(cohort, 4, 2, fill=7.0)
    h.requires_grad_()
    out = HIDDEN[kind][0](cohort, h, weights)
    pull, _ = reference.random_rows(cohort, out.shape[1], 3, fill=0.0)
    (out * pull).sum().backward()
    empty = cohort.position >= torch.tensor(cohort.sizes)[cohort.client]
    assert empty.any()
    assert torch.isfinite(out).all()
    assert not h.grad[empty].any()


def test_attention_survives_large_scores() -> None:
    """Scores in the hundreds overflow exp unless the largest is taken off first."""
    cohort = lay([random_client(np.random.default_rng(0), 0, 12)])
    weights = reference.leaves(reference.random_weights(gat_shapes(4, 1, 3), 1, 0))
    h, parts = reference.random_rows(cohort, 4, 1, fill=0.0)
    scaled = {name: w * 100 if name in ("source", "target") else w for name, w in weights.items()}
    out = layers.gat(cohort, h, **scaled)
    out.sum().backward()
    expected = reference.gat(cohort.members[0], parts[0].double(), reference.of_client(scaled, 0))
    assert_near(out.detach(), expected.detach(), 1e-4)
    assert all(torch.isfinite(w.grad).all() for w in weights.values())


@given(seed=seeds, clients=st.integers(1, 4))
def test_masked_multiplies_where_there_is_a_mask(seed: int, clients: int) -> None:
    shape = {"conv1.weight": (3, 4), "conv1.bias": (4,)}
    weights = reference.leaves(reference.random_weights(shape, clients, seed))
    mask = reference.random_weights({"conv1.weight": (3, 4)}, clients, seed + 1)["conv1.weight"].requires_grad_()
    acting = layers.masked(weights, {"conv1.weight": mask})
    assert list(acting) == list(weights)
    assert_near(acting["conv1.weight"].detach(), (weights["conv1.weight"].double() * (1 + mask.double())).detach())
    assert acting["conv1.bias"] is weights["conv1.bias"]
    acting["conv1.weight"].sum().backward()
    assert_near(weights["conv1.weight"].grad, 1 + mask.detach().double())
    assert torch.equal(mask.grad, weights["conv1.weight"])
