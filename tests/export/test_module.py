"""Exported modules give the outputs of their method, for every method, on any graph."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.export.module import PersonalModule
from fedquilt.export.sources import module_of_personal
from fedquilt.graphs.prepare import normalise
from fedquilt.methods.base import methods
from fedquilt.methods.personal_model import Personal, model_facts
from support.clients import assert_near, client_lists, random_client
from support.federations import make_method, make_task, ragged_clients
from support.trained_sites import grown_since, logits_of, personal_of, trained

HERO = {"k": 4, "learner_hidden": 8}
# Whatever changes the forward pass of a method.
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in methods()),
    *(("fedavg", {"model": kind}) for kind in ("sage", "gat", "mlp")),
    ("fedavg", {"model": "gat", "hidden": 6}),
    ("fedpub", {"threshold": 0.5, "l1": 0.1}),
    ("fedpub", {"masking": False, "similarity": "parameter", "model": "sage"}),
    ("fediih", {"classify": "both", "layers": 5, "hidden": 16}),
    ("fediih", {"disentangle": False}),
    ("fediih", {"wide": True, "through": True, "iterations": 2}),
    *(("fedssa", {"basis": kind}) for kind in ("monomial", "chebyshev", "bernstein")),
    ("fedssa", {"order": 1, "mix": 0.3}),
    ("fedssa", {"encoder": "separate"}),
    ("fedssa", {"classify": "mean"}),
    *(("fedhero", HERO | {"learner": kind}) for kind in ("heads", "cosine", "attention", "gat", "glcn", "gaug")),
    ("fedhero", HERO | {"channels": 1}),
    ("fedhero", HERO | {"latent": "bernoulli"}),
    ("fedhero", HERO | {"latent": "bernoulli", "learner": "cosine", "k": 30}),
    ("fedsheafhn", {"width": 16, "warmup": 3, "model": "sage"}),
    *(("quilt", {"basis": kind}) for kind in ("monomial", "chebyshev")),
    ("quilt", {"identity": 4}),
    ("quilt", {"hidden": 16, "order": 1, "groups": 1}),
    ("quilt", {"model": "gcn", "masks": False}),
]


def named(case: Any) -> str:
    return ",".join(f"{k}={v}" for k, v in case.items()) or "usual" if isinstance(case, dict) else str(case)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(("name", "settings"), CASES, ids=named)
def test_a_module_says_what_its_method_says(name: str, settings: dict[str, Any], sparse: bool) -> None:
    method, clients, models = trained(name, sparse=sparse, **settings)
    for client in clients:
        module = module_of_personal(personal_of(method, client, models))
        for now in (client, grown_since(method, client)):  # nodes added since: what it remembers of training stays
            assert_near(module(now.graph.to_data()).detach(), logits_of(method, now, models), 1e-5)


def test_the_test_above_would_notice() -> None:
    """Guards it: models differ between clients, and between what is learned and what is drawn at the start."""
    for name in ("fedssa", "fedhero", "quilt"):
        method, clients, models = trained(name)
        data = clients[0].graph.to_data()
        one, two = (module_of_personal(personal_of(method, client, models)) for client in clients[:2])
        assert float((one(data) - two(data)).detach().abs().max()) > 1e-3, name


def test_what_is_remembered_of_training_matters() -> None:
    method, clients, models = trained("fedssa", filter_lr=0.2)
    personal = personal_of(method, clients[0], models)
    data = clients[0].graph.to_data()
    assert 0.0 < personal.constants["homophily"] < 0.9
    other = replace(personal, constants={"homophily": 0.95})
    gap = module_of_personal(personal)(data) - module_of_personal(other)(data)
    assert float(gap.detach().abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["fedavg", "fediih", "fedssa", "quilt"])
@given(clients=client_lists(most=1), seed=st.integers(0, 99))
def test_any_weights_on_any_graph(name: str, clients: list[Client], seed: int) -> None:
    """Single nodes, isolated ones, no edges, no features, complete graphs; weights that were never trained."""
    module, expected = untrained(name, clients[0], seed)
    assert_near(module(clients[0].graph.to_data()).detach(), expected, 2e-5)


@pytest.mark.parametrize("kind", ["sage", "gat", "mlp"])
@given(clients=client_lists(most=1), seed=st.integers(0, 99))
def test_any_weights_of_any_backbone_on_any_graph(kind: str, clients: list[Client], seed: int) -> None:
    module, expected = untrained("fedavg", clients[0], seed, model=kind)
    assert_near(module(clients[0].graph.to_data()).detach(), expected)


@pytest.mark.parametrize("learner", ["heads", "gat", "glcn"])
@given(seed=st.integers(0, 999), nodes=st.integers(1, 16), edges=st.sampled_from([0.0, 0.3, 1.0]))
def test_any_structure_learner_on_any_graph(learner: str, seed: int, nodes: int, edges: float) -> None:
    """Every node is a latent neighbour: nodes that look the same to the learner would be chosen by rounding alone."""
    client = random_client(np.random.default_rng(seed), 5, nodes, edges=edges, filled=1.0)
    module, expected = untrained("fedhero", client, seed, **HERO | {"learner": learner, "k": 16})
    assert_near(module(client.graph.to_data()).detach(), expected)


def untrained(name: str, client: Client, seed: int, **settings: Any) -> tuple[PersonalModule, torch.Tensor]:
    method = make_method(name, [client], make_task([client], seed=seed), **settings)
    cohort = Cohort([client])
    stream = torch.Generator().manual_seed(seed)
    personal = {
        n: w + 0.3 * torch.randn(w.shape, generator=stream) for n, w in method.personal(method.start(cohort)).items()
    }
    module = module_of_personal(Personal.restored({n: w[0] for n, w in personal.items()}, model_facts(method, client)))
    return module, method.logits(personal, cohort)


@given(clients=client_lists(most=1), seed=st.integers(0, 99), sparse=st.booleans())
def test_how_edges_and_features_are_written_does_not_matter(clients: list[Client], seed: int, sparse: bool) -> None:
    client = clients[0]
    for name in ("fedavg", "quilt"):
        module, _ = untrained(name, client, seed)
        data = client.graph.to_data()
        rng = np.random.default_rng(seed)
        edges = client.graph.edges
        turned = np.where(rng.random(edges.shape[1]) < 0.5, edges, edges[::-1])  # each in one direction
        loops = np.repeat(rng.integers(0, client.graph.nodes, 3)[None], 2, axis=0)
        index = torch.from_numpy(np.concatenate([turned, loops, turned[:, ::2]], axis=1))
        x = data.x.to_sparse() if sparse else data.x.double()
        assert_near(module(Data(x=x, edge_index=index)).detach(), module(data).detach())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_features_are_normalised_where_the_run_did(sparse: bool) -> None:
    client = ragged_clients((12,), sparse)[0]
    ready = replace(client, graph=replace(client.graph, x=normalise(client.graph.x)))
    method = make_method("fedavg", [client])
    cohort = Cohort([ready])
    personal = method.personal(method.start(cohort))
    facts = model_facts(method, client, normalise_features=True)
    module = module_of_personal(Personal.restored({n: w[0] for n, w in personal.items()}, facts))
    data = client.graph.to_data()
    data.x = data.x.to_sparse() if sparse else data.x
    assert_near(module(data).detach(), method.logits(personal, cohort))
    assert_near(module(ready.graph.to_data()).detach(), method.logits(personal, cohort))  # again changes nothing


def test_gradients_reach_every_weight() -> None:
    """An exported model can be trained further."""
    for name in ("fedavg", "fediih", "fedssa", "quilt", "fedhero"):
        method, clients, models = trained(name)
        module = module_of_personal(personal_of(method, clients[0], models)).train()
        module(clients[0].graph.to_data()).square().sum().backward()
        assert all(w.grad is not None and float(w.grad.abs().max()) > 0 for w in module.parameters()), name


def test_a_module_is_a_usual_torch_module() -> None:
    """It moves, copies and keeps its weights as others do, and takes x and edges by themselves too."""
    method, clients, models = trained("fedavg")
    module, data = module_of_personal(personal_of(method, clients[0], models)), clients[0].graph.to_data()
    logits = module(data)
    assert torch.equal(module(data.x, data.edge_index), logits)
    assert {name for name, _ in module.named_parameters()} == set(models)
    other = copy.deepcopy(module)
    assert torch.equal(other(data), logits)
    with torch.no_grad():
        other.get_parameter("classifier.bias").add_(1.0)
    assert_near(other(data).detach(), logits.detach() + 1.0)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(data), logits)


def test_a_graph_is_prepared_once_and_again_when_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    method, clients, models = trained("fedavg")
    module, data = module_of_personal(personal_of(method, clients[0], models)), clients[0].graph.to_data()
    prepared: list[Any] = []
    cohort = Personal.cohort
    monkeypatch.setattr(Personal, "cohort", lambda self, *graph: prepared.append(graph) or cohort(self, *graph))
    before = module(data)
    assert torch.equal(module(data), before)
    assert len(prepared) == 1
    data.x[0] += 1.0
    assert not torch.equal(module(data), before)
    data.edge_index = data.edge_index[:, 2:]
    module(data)
    assert len(prepared) == 3


def test_training_a_module_further_lowers_its_loss() -> None:
    method, clients, models = trained("quilt", rounds=1)
    module, data = module_of_personal(personal_of(method, clients[0], models)), clients[0].graph.to_data()
    known = data.y >= 0
    optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(module(data)[known], data.y[known])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
