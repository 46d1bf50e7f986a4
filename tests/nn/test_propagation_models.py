"""Each network that propagates without weights equals PyTorch Geometric's layer, or its paper's formulas, client by client."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import APPNP, SGConv

from fedquilt.cohort import features as features_module
from fedquilt.cohort.client import Client
from fedquilt.cohort.draws import client_keys
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import Model
from fedquilt.nn.propagation_models import recursive_attention
from fedquilt.tasks.node_classification import class_count
from support import pyg_reference as reference
from support.clients import (
    FEATURES,
    LAYOUTS,
    assert_near,
    client_lists,
    edge_index,
    gcn_operator,
    hard_clients,
    lay,
    relative_weights,
    with_weights,
)
from support.pyg_reference import Weights

Reference = Callable[[Client, Weights, int, Tensor], tuple[Tensor, Tensor]]
seeds = st.integers(0, 2**31)


def sgc(client: Client, w: Weights, hops: int, keep: Tensor) -> tuple[Tensor, Tensor]:
    conv = SGConv(*w["conv1.weight"].shape, K=hops)
    parameters = {"lin.weight": w["conv1.weight"].T, "lin.bias": w["conv1.bias"]}
    z = reference.call(conv, parameters, reference.features(client), edge_index(client), strengths(client))
    return (z * keep) @ w["classifier.weight"] + w["classifier.bias"], z


def appnp(client: Client, w: Weights, hops: int, keep: Tensor) -> tuple[Tensor, Tensor]:
    z = reference.features(client) @ w["conv1.weight"] + w["conv1.bias"]
    predicted = (torch.relu(z) * keep) @ w["classifier.weight"] + w["classifier.bias"]
    return APPNP(K=hops, alpha=0.1)(predicted, edge_index(client), strengths(client)), z


def strengths(client: Client) -> Tensor:
    """[2E]: the relative weights of `edge_index`."""
    return torch.from_numpy(relative_weights(client)).repeat(2)


def gamlp(client: Client, w: Weights, hops: int, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. by eq. of the paper, node by node: scores of hops from the mix of those before, then the MLP of the mix."""
    p = torch.from_numpy(gcn_operator(client))
    powers = [torch.linalg.matrix_power(p, k) @ reference.features(client) for k in range(hops + 1)]
    own, past = w["conv1.attention"].T
    mixed = []
    for node in range(client.graph.nodes):
        x = [each[node] for each in powers]
        scores: list[Tensor] = []
        for k in range(hops + 1):
            before = torch.softmax(torch.stack(scores), 0) if scores else torch.ones(1).double()
            y = sum(
                (share * each for share, each in zip(before, x[: max(k, 1)], strict=True)), torch.zeros(()).double()
            )
            score = torch.dot(own, x[k]) + torch.dot(past, y)
            scores.append(torch.where(score > 0, score, 0.2 * score))
        shares = torch.softmax(torch.stack(scores), 0)
        mixed.append(sum((share * each for share, each in zip(shares, x, strict=True)), torch.zeros(()).double()))
    z = torch.stack(mixed) @ w["conv1.weight"] + w["conv1.bias"]
    return (torch.relu(z) * keep) @ w["classifier.weight"] + w["classifier.bias"], z


REFERENCES: dict[str, Reference] = {"sgc": sgc, "appnp": appnp, "gamlp": gamlp}


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize("kind", REFERENCES)
@example(clients=with_weights(hard_clients()), seed=0, hops=2, rate=0.5)
@settings(max_examples=6, deadline=None)
@given(
    clients=st.one_of(client_lists(most=4), client_lists(most=4).map(with_weights)),
    seed=seeds,
    hops=st.integers(1, 4),
    rate=st.sampled_from([None, 0.0, 0.5]),
)
def test_a_model_equals_its_reference(
    kind: str, rows: str, features: str, clients: list[Client], seed: int, hops: int, rate: float | None
) -> None:
    cohort = lay(clients, rows, features)
    model = Model.kinds[kind](cohort.features, 5, class_count(cohort), hops)
    weights = reference.leaves(reference.random_weights(model.shapes(), len(clients), seed))
    dropout = None if rate is None else Dropout(rate, client_keys(seed, cohort), 3)
    with mock.patch.object(features_module, "SPARSE_LIMIT", FEATURES[features]):
        out = model(cohort, weights, dropout)
    pull, pulls = reference.random_rows(cohort, class_count(cohort), seed + 1, fill=0.0)
    (out.logits * pull).sum().backward()
    keep = dropout.mask(cohort, 5, 0) if dropout else torch.ones(cohort.rows, 5)
    for m, client in enumerate(clients):
        own = reference.of_client(weights, m)
        logits, embedding = REFERENCES[kind](client, own, hops, cohort.parts_of(keep)[m].double())
        (logits * pulls[m]).sum().backward()
        assert_near(cohort.parts_of(out.logits.detach())[m], logits.detach(), 2e-5)
        assert_near(cohort.parts_of(out.embedding.detach())[m], embedding.detach(), 2e-5)
        for name, w in weights.items():
            assert_near(w.grad[m], own[name].grad, 5e-5)


def test_attention_over_equal_scores_is_the_mean_of_the_hops() -> None:
    nothing = (torch.zeros(4, 1),) * 3
    assert torch.equal(recursive_attention(nothing, nothing), torch.full((4, 3), 1 / 3))
    liked = (torch.zeros(4, 1), torch.full((4, 1), 50.0), torch.zeros(4, 1))
    assert_near(recursive_attention(liked, nothing)[:, 1], torch.ones(4))


def test_attention_depends_on_the_hops_before() -> None:
    """With `past` alone, a hop's score is that of the mix before it: the first two hops get equal shares."""
    nothing, past = (torch.zeros(2, 1),) * 3, (torch.tensor([[3.0], [1.0]]), torch.zeros(2, 1), torch.zeros(2, 1))
    shares = recursive_attention(nothing, past)
    assert torch.equal(shares[:, 0], shares[:, 1])
    assert bool((shares[:, 2] < shares[:, 1]).all())


def test_sgc_is_one_linear_map_of_the_propagated_features() -> None:
    """The two weight matrices are a product: their entries matter in no other way."""
    cohort = lay(hard_clients())
    model = Model.kinds["sgc"](cohort.features, 5, 3, 2)
    w = reference.random_weights(model.shapes(), cohort.clients, 0)
    turned, _ = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(0)))
    same = w | {
        "conv1.weight": w["conv1.weight"] @ turned,
        "conv1.bias": w["conv1.bias"] @ turned,
        "classifier.weight": turned.T @ w["classifier.weight"],
    }
    assert_near(model(cohort, same).logits, model(cohort, w).logits)


def test_appnp_propagates_as_many_columns_as_there_are_classes() -> None:
    cohort = lay(hard_clients(), "compact")
    model = Model.kinds["appnp"](cohort.features, 64, 3, 6)
    weights = reference.random_weights(model.shapes(), cohort.clients, 0)
    model(cohort, weights)
    sizes = []
    with mock.patch.object(type(cohort.gcn), "__matmul__", lambda matrix, dense: sizes.append(dense.shape) or dense):
        model(cohort, weights)
    assert sizes[-6:] == [(cohort.rows, 3)] * 6
