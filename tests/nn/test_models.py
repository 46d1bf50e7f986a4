"""Each model over a cohort equals PyTorch Geometric's layers composed, client by client; start weights."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.cohort.client import Client
from fedquilt.cohort.draws import client_keys
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import Model, common_start, matrices
from fedquilt.tasks.node_classification import class_count
from support import pyg_reference as reference
from support.clients import LAYOUTS, PADDING, assert_near, client_lists, lay, with_training_nodes

CPU = torch.device("cpu")
KINDS = ["gcn", "sage", "gat", "mlp"]
# Two layers of attention in float32: see TOLERANCE in test_layers.
TOLERANCE = {"gat": 3e-4}
seeds = st.integers(0, 2**31)


def test_all_kinds_are_known() -> None:
    assert set(Model.kinds) == set(KINDS)
    assert all(cls.kind == kind for kind, cls in Model.kinds.items())


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize("hidden", [8, 5])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4)
@given(clients=client_lists(most=4), seed=seeds, rate=st.sampled_from([None, 0.0, 0.5, 0.37]))
def test_a_model_equals_pyg_layers(
    kind: str, hidden: int, rows: str, features: str, clients: list[Client], seed: int, rate: float | None
) -> None:
    cohort = lay(clients, rows, features)
    model = Model.kinds[kind](cohort.features, hidden, class_count(cohort))
    weights = reference.leaves(reference.random_weights(model.shapes(), len(clients), seed))
    dropout = None if rate is None else Dropout(rate, client_keys(seed, cohort), 3)
    out = model(cohort, weights, dropout)
    pull, pulls = reference.random_rows(cohort, class_count(cohort), seed + 1, fill=0.0)
    (out.logits * pull).sum().backward()
    keeps = [dropout.keep(cohort, hidden, layer) for layer in (0, 1)] if dropout else None
    for m, client in enumerate(clients):
        own = reference.of_client(weights, m)
        mine = tuple(cohort.parts_of(keep)[m] for keep in keeps) if keeps else None
        logits, embedding = reference.model(kind, client, own, mine, dropout.scale if dropout else 1.0)
        (logits * pulls[m]).sum().backward()
        tolerance = TOLERANCE.get(kind, 2e-5)
        assert_near(cohort.parts_of(out.logits.detach())[m], logits.detach(), tolerance)
        assert_near(cohort.parts_of(out.embedding.detach())[m], embedding.detach(), tolerance)
        for name, w in weights.items():
            assert_near(w.grad[m], own[name].grad, tolerance)


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
def test_layers_are_stacked(kind: str) -> None:
    """With the first two layers of three as they are and the third one applied by hand, the output is the same."""
    cohort = lay(with_training_nodes((5, 3)), "compact")
    three, two = (Model.kinds[kind](cohort.features, 8, class_count(cohort), layers) for layers in (3, 2))
    weights = reference.random_weights(three.shapes(), 2, 0)
    inner = {name: w for name, w in weights.items() if not name.startswith("conv3.")}
    third = {name.removeprefix("conv3."): w for name, w in weights.items() if name.startswith("conv3.")}
    embedding = three.second(cohort, torch.relu(two(cohort, inner).embedding), third)
    assert_near(three(cohort, weights).embedding, embedding, 1e-4)
    one = Model.kinds[kind](cohort.features, 8, class_count(cohort), 1)
    assert list(one.shapes()) == [name for name in two.shapes() if not name.startswith("conv2.")]


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


@pytest.mark.parametrize("kind", KINDS)
def test_start_is_glorot_with_zero_biases_and_the_same_for_everyone(kind: str) -> None:
    model = Model.kinds[kind](300, 64, 7)
    weights = common_start(model.shapes(), 3, 4, CPU)
    assert list(weights) == list(model.shapes())
    for name, shape in model.shapes().items():
        w = weights[name]
        assert w.shape == (4, *shape)
        assert w.dtype == torch.float32
        assert torch.equal(w, w[:1].expand_as(w))
        if len(shape) == 1:
            assert name.endswith(".bias")
            assert not w.any()
            continue
        bound = math.sqrt(6.0 / (shape[-2] + shape[-1]))
        assert float(w.abs().max()) <= bound
        if w[0].numel() > 1000:
            assert float(w.abs().max()) > 0.99 * bound
            # Uniform on [-bound, bound]: mean 0, standard deviation bound / sqrt(3).
            assert abs(float(w[0].mean())) < 5 * bound / math.sqrt(3 * w[0].numel())
            assert float(w[0].std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_start_depends_on_the_seed_alone(kind: str) -> None:
    model = Model.kinds[kind](6, 8, 3)
    one = common_start(model.shapes(), 0, 3, CPU)
    torch.manual_seed(123)
    torch.rand(10)
    again, more, other = (common_start(model.shapes(), seed, n, CPU) for seed, n in ((0, 3), (0, 11), (1, 3)))
    for name in one:
        assert torch.equal(one[name], again[name])
        assert torch.equal(one[name][0], more[name][10])
        assert torch.equal(one[name], other[name]) == name.endswith(".bias")


def test_start_weights_of_clients_are_not_one_memory() -> None:
    """Clients train their own: a change of one client's weights must not reach another's."""
    weights = common_start(Model.kinds["gcn"](6, 8, 3).shapes(), 0, 3, CPU)
    before = weights["conv1.weight"][1].clone()
    weights["conv1.weight"][0].add_(1.0)
    assert torch.equal(weights["conv1.weight"][1], before)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_are_all_but_the_biases(kind: str) -> None:
    shapes = Model.kinds[kind](6, 8, 3).shapes()
    assert set(shapes) - set(matrices(shapes)) == {"conv1.bias", "conv2.bias", "classifier.bias"}


@pytest.mark.parametrize(("hidden", "heads"), [(128, 4), (4, 4), (6, 1), (5, 1)])
def test_attention_heads_divide_the_width(hidden: int, heads: int) -> None:
    shapes = Model.kinds["gat"](6, hidden, 3).shapes()
    assert shapes["conv1.source"] == shapes["conv2.target"] == (heads, hidden // heads)
