"""Every network over a cohort: at the training nodes it is itself there, and a client computes the same alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.cohort.client import Client
from fedquilt.cohort.draws import client_keys
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import Model, matrices
from fedquilt.tasks.node_classification import class_count
from support import pyg_reference as reference
from support.clients import PADDING, assert_near, client_lists, lay, with_training_nodes

KINDS = sorted(Model.kinds)
# Two layers of attention in float32: see TOLERANCE in test_layers; so is what is normalised.
TOLERANCE = {"gat": 3e-4, "gin": 3e-4}
seeds = st.integers(0, 2**31)


def test_all_kinds_are_known() -> None:
    assert set(Model.kinds) >= {"gcn", "sage", "gat", "mlp", "sgc", "appnp", "gin", "gcnii", "gamlp"}
    assert all(cls.kind == kind for kind, cls in Model.kinds.items())


def assert_training_is_the_model_at_training_nodes(
    kind: str, clients: list[Client], rows: str, rate: float, seed: int, layers: int = 2
) -> None:
    cohort = lay(clients, rows)
    training = cohort.training
    assert torch.equal(training.index[training.real], cohort.train)
    model = Model.kinds[kind](cohort.features, 8, class_count(cohort), layers)
    dropout = Dropout(rate, client_keys(seed, cohort), 5)
    weights = reference.random_weights(model.shapes(), len(clients), seed)
    pull = torch.randn(len(cohort.train), class_count(cohort), generator=torch.Generator().manual_seed(seed + 1))
    found = []
    for call, chosen in ((model, cohort.train), (model.training, training.real)):
        leaves = reference.leaves(weights)
        out = call(cohort, leaves, dropout)
        grads = torch.autograd.grad((out.logits[chosen] * pull).sum(), list(leaves.values()))
        found.append([out.logits[chosen].detach(), out.embedding[chosen].detach(), *grads])
    for whole, part in zip(*found, strict=True):
        assert bool(torch.isfinite(part).all())
        assert_near(part, whole, TOLERANCE.get(kind, 2e-5))


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(clients=client_lists(most=5), seed=seeds, rate=st.sampled_from([0.0, 0.5, 0.37]))
def test_training_is_the_model_at_the_training_nodes(
    kind: str, rows: str, clients: list[Client], seed: int, rate: float
) -> None:
    assert_training_is_the_model_at_training_nodes(kind, clients, rows, rate, seed)


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize(
    ("counts", "padded"),
    [((5, 5, 5), True), ((1, 2, 3), True), ((0, 4, 0), True), ((0, 0, 0, 0, 12), False), ((1, 1, 1, 1, 14), False)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_training_with_few_or_no_training_nodes(
    kind: str, counts: tuple[int, ...], padded: bool, rate: float, rows: str
) -> None:
    clients = with_training_nodes(counts)
    assert (lay(clients, rows).training.length is not None) == padded
    assert_training_is_the_model_at_training_nodes(kind, clients, rows, rate, 3)


@pytest.mark.parametrize("layers", [1, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_model_at_the_training_nodes_with_other_numbers_of_layers(kind: str, layers: int) -> None:
    assert_training_is_the_model_at_training_nodes(kind, with_training_nodes((5, 3, 6)), "padded", 0.5, 3, layers)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", PADDING)
def test_training_without_any_training_node_is_empty(kind: str, rows: str) -> None:
    cohort = lay(with_training_nodes((0, 0)), rows)
    model = Model.kinds[kind](cohort.features, 8, class_count(cohort))
    weights = reference.leaves(reference.random_weights(model.shapes(), 2, 0))
    out = model.training(cohort, weights, Dropout(0.5, client_keys(0, cohort), 0))
    assert out.logits.shape == (0, class_count(cohort))
    for grad in torch.autograd.grad(out.logits.sum(), list(weights.values()), allow_unused=True):
        assert grad is None or not grad.any()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5)
@given(clients=client_lists(most=4), seed=seeds)
def test_a_client_computes_the_same_alone(kind: str, clients: list[Client], seed: int) -> None:
    """The simulation equals the deployment: a cohort of M and M cohorts of one agree, dropout included."""
    together = lay(clients, "padded")
    model = Model.kinds[kind](together.features, 8, class_count(together))
    weights = reference.random_weights(model.shapes(), len(clients), seed)
    logits = model(together, weights, Dropout(0.5, client_keys(seed, together), 7)).logits
    for m, client in enumerate(clients):
        alone = lay([client], "compact")
        own = {name: w[m : m + 1] for name, w in weights.items()}
        mine = model(alone, own, Dropout(0.5, client_keys(seed, alone), 7)).logits
        assert_near(mine, together.parts_of(logits)[m], TOLERANCE.get(kind, 2e-5))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_names_of_weights_tell_what_they_do(kind: str, layers: int) -> None:
    """FedPer shares what begins with conv, Quilt averages by evidence what reads features; masks are on matrices."""
    model = Model.kinds[kind](6, 8, 3, layers)
    shapes = model.shapes()
    assert set(shapes) - set(model.conv_shapes()) == {"classifier.weight", "classifier.bias"}
    assert all(name.startswith("conv") for name in model.conv_shapes())
    assert shapes["conv1.weight"] == (6, 8)
    assert shapes["classifier.weight"] == (8, 3)
    assert set(shapes) - set(matrices(shapes)) == {name for name in shapes if name.endswith(".bias")}
    assert {name for name, shape in shapes.items() if shape[0] == 6} == set(model.feature_weights)
