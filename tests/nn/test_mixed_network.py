"""Clients with different networks in one cohort compute what each computes alone, forward and backward."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.mixed_network import MixedNetwork, ProjectedNetwork
from fedquilt.nn.models import Model, Output
from support.clients import assert_near
from support.federations import ragged_clients
from support.pyg_reference import leaves, random_weights

KINDS = ("gcn", "sage", "gcn", "gat", "sage")
CPU = torch.device("cpu")


def networks(width: int = 4) -> dict[str, Model]:
    return {kind: Model.kinds[kind](10, width, 3, 2) for kind in ("gcn", "sage", "gat", "mlp")}


def label_of(client: Client) -> str:
    return str(client.settings.get("model", "gcn"))


def members(kinds: tuple[str, ...] = KINDS, sparse: bool = False) -> list[Client]:
    found = ragged_clients(sparse=sparse)[: len(kinds)]
    return [replace(client, settings={"model": kind}) for client, kind in zip(found, kinds, strict=True)]


def mixed(width: int = 4) -> MixedNetwork:
    return MixedNetwork(networks(width), label_of, 3)


def alone(client: Client, weights: Weights, m: int, dropout: Dropout | None) -> tuple[Output, Weights]:
    """The client's outputs in a cohort of one with its own network, and the weights they were computed from."""
    kind = label_of(client)
    own = {n.removeprefix(f"{kind}."): w[m : m + 1].detach() for n, w in weights.items() if n.startswith(f"{kind}.")}
    own = leaves(own)
    network, cohort = networks()[kind], Cohort([client])
    if dropout is None:
        return network(cohort, own), own
    return network.training(cohort, own, Dropout(dropout.rate, dropout.keys[m : m + 1], dropout.step)), own


@pytest.mark.parametrize("padding", [1e9, -1.0], ids=["padded", "compact"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("training", [False, True], ids=["everywhere", "training"])
def test_a_mixed_cohort_equals_cohorts_of_one(training: bool, sparse: bool, padding: float) -> None:
    clients, network = members(sparse=sparse), mixed()
    cohort = Cohort(clients, padding=padding)
    weights = leaves(random_weights(network.shapes(), len(clients), 1))
    dropout = Dropout(0.5, torch.arange(5), 2) if training else None
    output = network(cohort, weights) if dropout is None else network.training(cohort, weights, dropout)
    rows = cohort.nodes if dropout is None else cohort.training.real
    owner = cohort.client[rows] if dropout is None else cohort.client[cohort.train]
    total = output.logits[rows].square().sum() + output.embedding[rows].sum()
    grads = dict(zip(weights, torch.autograd.grad(total, list(weights.values())), strict=True))
    for m, client in enumerate(clients):
        one, own = alone(client, weights, m, dropout)
        single = Cohort([client])
        mine = single.nodes if dropout is None else single.training.real
        assert_near(output.logits[rows][owner == m], one.logits[mine])
        assert_near(output.embedding[rows][owner == m], one.embedding[mine])
        wanted = torch.autograd.grad(one.logits[mine].square().sum() + one.embedding[mine].sum(), list(own.values()))
        for name, grad in zip(own, wanted, strict=True):
            assert_near(grads[f"{label_of(client)}.{name}"][m], grad[0], 1e-4)
        for name, grad in grads.items():
            if not name.startswith(f"{label_of(client)}."):
                assert not grad[m].any(), name  # mlp, which nobody has, too


def test_clients_that_all_have_the_same_network_need_no_second_cohort() -> None:
    cohort, network = Cohort(members(("sage",) * 3)), mixed()
    (part,) = network._parts(cohort)
    assert part.cohort is cohort
    weights = random_weights(network.shapes(), 3, 0)
    plain = networks()["sage"](cohort, network.own_weights(weights, "sage"))
    assert torch.equal(network(cohort, weights).logits, plain.logits)


def test_embeddings_of_different_widths_are_left_out() -> None:
    network = MixedNetwork(
        {"gcn": Model.kinds["gcn"](10, 4, 3, 2), "sage": Model.kinds["sage"](10, 6, 3, 1)}, label_of, 3
    )
    cohort = Cohort(members(("gcn", "sage")))
    output = network(cohort, random_weights(network.shapes(), 2, 0))
    assert output.embedding.shape == (cohort.rows, 0)
    assert output.logits.shape == (cohort.rows, 3)


def test_every_network_starts_as_it_would_alone() -> None:
    network = mixed()
    start = network.start(2, CPU)
    assert {name: tuple(w.shape[1:]) for name, w in start.items()} == network.shapes()
    same = MixedNetwork({"sage": networks()["sage"]}, label_of, 3).start(2, CPU)
    assert all(torch.equal(start[name], w) for name, w in same.items())
    assert network.has("sage", Cohort(members())).tolist() == [False, True, False, False, True]


def test_weights_of_edges_are_ignored_where_no_network_uses_them() -> None:
    assert mixed().ignores_edge_weights == ""
    dense = MixedNetwork({"mlp": networks()["mlp"], "mlp-1": networks()["mlp"]}, label_of, 3)
    assert "does not read edges" in dense.ignores_edge_weights
    assert not dense.one_by_one


def test_a_projection_maps_embeddings_and_leaves_logits() -> None:
    cohort, base = Cohort(members(("gcn",) * 3)), networks()["gcn"]
    network = ProjectedNetwork(base, 4, 6)
    weights = random_weights(network.shapes(), 3, 2)
    output, plain = network(cohort, weights), base(cohort, weights)
    assert torch.equal(output.logits, plain.logits)
    for m, (z, found) in enumerate(zip(*map(cohort.parts_of, (plain.embedding, output.embedding)), strict=True)):
        assert_near(found, z @ weights["embedding.weight"][m] + weights["embedding.bias"][m])
    calm = Dropout(0.0, torch.zeros(3, dtype=torch.int64), 0)
    training = network.training(cohort, weights, calm)
    assert_near(training.embedding[cohort.training.real], output.embedding[cohort.train])
    assert network.ignores_edge_weights == ""
