"""What is said about latent graphs, against loops over pairs and a dense gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import client_keys
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import TRAIN, VAL
from fedquilt.methods.fedhero import FedHERO
from fedquilt.nn.dropout import Dropout
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import execute_run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.latent_graphs import NAMES, describe, gradient_shares, measure_latent_graphs, shuffled
from support.clients import dense_adjacency, random_client
from support.federations import make_method, make_task, ragged_clients

BASE: dict[str, Any] = {"dataset": "communities-3", "rounds": 2, "clients": 3, "seeds": [1], "device": "cpu"}


def test_a_client_is_described_pair_by_pair() -> None:
    rng = np.random.default_rng(0)
    client = random_client(rng, 0, 30, edges=0.2)
    client.graph.y[:] = np.maximum(client.graph.y, 0)
    split = rng.integers(0, 3, 30).astype(np.int8)
    u, v, weight = rng.integers(0, 30, 200), rng.integers(0, 30, 200), rng.random(200)
    a, y, trains = dense_adjacency(client), client.graph.y, split == TRAIN
    sums = dict.fromkeys(("alike", "known", "self", "all", "edges", "others", "new", "new alike"), 0.0)
    for one, two, w in zip(u, v, weight, strict=True):
        sums["all"] += w
        if one == two:
            sums["self"] += w
            continue
        sums["others"] += w
        sums["edges"] += w * a[one, two]
        if split[one] == VAL and trains[two]:
            sums["new"] += w
            sums["new alike"] += w * (y[one] == y[two])
        if trains[one] and trains[two]:
            sums["known"] += w
            sums["alike"] += w * (y[one] == y[two])
    pairs = [(i, j) for i in range(30) for j in range(30) if i != j and trains[i] and trains[j]]
    found = describe(client.graph, split, u, v, weight)
    assert found["homophily"] == pytest.approx(100 * sums["alike"] / sums["known"])
    assert found["unseen"] == pytest.approx(100 * sums["new alike"] / sums["new"])
    assert found["self"] == pytest.approx(100 * sums["self"] / sums["all"])
    assert found["edges"] == pytest.approx(100 * sums["edges"] / sums["others"])
    assert found["chance"] == pytest.approx(100 * np.mean([y[i] == y[j] for i, j in pairs]))
    assert found["given"] == pytest.approx(100 * np.mean([y[i] == y[j] for i, j in pairs if a[i, j]]))


def test_gradients_of_the_two_terms_are_compared_client_by_client() -> None:
    clients = ragged_clients()
    cohort = Cohort(clients)
    method = make_method("fedhero", clients, make_task(clients), learner_hidden=6, heads=3, k=4)
    assert isinstance(method, FedHERO)
    personal = method.personal(method.start(cohort))
    found = gradient_shares(method, personal, cohort, 3)
    for m, client in enumerate(clients):
        one = Cohort([client])
        leaves = {name: w[m : m + 1].clone().requires_grad_() for name, w in personal.items()}
        error, _, penalty = method.losses(leaves, one, Dropout(0.0, client_keys(3, one), 0))
        learner = [w for name, w in leaves.items() if name.startswith("learner.")]
        norms = []
        for term in (penalty, error):
            grads = torch.autograd.grad(term, learner, retain_graph=True)
            norms.append(float(torch.cat([grad.flatten() for grad in grads]).norm()))
        assert found[m] == pytest.approx(100 * norms[0] / norms[1], rel=1e-3)
    frozen = make_method("fedhero", clients, make_task(clients), learner="self")
    assert isinstance(frozen, FedHERO)
    assert np.isnan(gradient_shares(frozen, frozen.personal(frozen.start(cohort)), cohort, 3)).all()


def test_a_shuffled_graph_has_other_neighbours_of_the_same_client() -> None:
    clients = ragged_clients()
    cohort = Cohort(clients)
    method = make_method("fedhero", clients, make_task(clients), k=4)
    assert isinstance(method, FedHERO)
    with torch.no_grad():
        latent = method.latent(method.personal(method.start(cohort)), cohort)
    other = shuffled(latent, cohort, 5)
    assert torch.equal(other.links.source, latent.links.source)
    assert torch.equal(other.weight, latent.weight)
    before, after = latent.links.target.long(), other.links.target.long()
    assert torch.equal(cohort.client[before], cohort.client[after])
    # One node for another, so that a node is chosen as often as the one in whose place it is.
    assert len({(int(b), int(a)) for b, a in zip(before, after, strict=True)}) == len(before.unique())
    assert len(after.unique()) == len(before.unique())
    assert (before != after).any()
    h = torch.ones(cohort.rows, 2)
    assert torch.allclose(other.propagate(cohort, h), latent.propagate(cohort, h))
    with torch.no_grad():
        alone = method.latent(method.personal(method.start(one := Cohort([clients[2]]))), one)
    mine = shuffled(alone, one, 5).links.target.long()
    inside = latent.links.source.long().eq(cohort.nodes.unsqueeze(1)).any(0) & (
        cohort.client[latent.links.source.long()] == 2
    )
    assert torch.equal(after[inside] - int(cohort.start[2]), mine)


def test_a_run_is_measured_and_other_methods_are_refused() -> None:
    config = RunConfig.build(BASE | {"method": "fedhero", "settings": {"k": 5, "hidden": 8}})
    found = measure_latent_graphs(ResolvedRun(config), execute_run(config, None))
    assert tuple(found) == NAMES
    assert all(value is not None and value >= 0 for value in found.values())
    other = RunConfig.build(BASE | {"method": "fedavg"})
    with pytest.raises(FedquiltError, match="'fedavg' has no latent graphs"):
        measure_latent_graphs(ResolvedRun(other), execute_run(other, None))
