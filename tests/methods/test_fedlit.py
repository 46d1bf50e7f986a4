"""FedLIT: with one type it is FedAvg; types are matched and averaged by those who have links of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import dense
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedlit import TYPED_NODES, FedLIT
from fedquilt.methods.settings import BackboneSettings
from fedquilt.nn.layers import Weights
from fedquilt.nn.link_types import CENTROIDS, TypedGcn, assign, links_of
from fedquilt.training.plan import Plan
from support.clients import assert_near, numbers
from support.federations import (
    make_method,
    make_task,
    make_training,
    ragged_clients,
    registered,
    tapped_run,
)

CLIENTS = ragged_clients()


def make(**settings: Any) -> FedLIT:
    method = make_method("fedlit", CLIENTS, make_task(CLIENTS, epochs=2), **settings)
    assert isinstance(method, FedLIT)
    return method


class Projected(FedAvg):
    """FedAvg on a projection and a GCN: the same network with all links of one type, the centroids a weight like the others."""

    Settings = BackboneSettings

    def make_model(self) -> TypedGcn:
        s, context = self.settings, self.context
        return TypedGcn(context.features, s.hidden, context.outputs, s.layers, 1)

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        weights = super().common_weights(clients, device)
        return weights | {name: torch.zeros_like(w) for name, w in weights.items() if name.endswith(".bias")}

    def effective_gradients(self, weights: Weights, cohort: Cohort, dropout: Any) -> tuple[Weights, Tensor]:
        own = {name: w.detach().requires_grad_() for name, w in weights.items() if name != CENTROIDS}
        logits = self.model.training(cohort, own | {CENTROIDS: weights[CENTROIDS]}, dropout).logits
        total, each = self.task.training_loss(cohort, logits, dropout.draws)
        grads = torch.autograd.grad(total, list(own.values()))
        return dict(zip(own, grads, strict=True)) | {CENTROIDS: torch.zeros_like(weights[CENTROIDS])}, each


def test_with_one_type_it_is_fedavg() -> None:
    with registered(Projected, "projected"):
        found = []
        for method in (make(types=1), make_method("projected", CLIENTS, make_task(CLIENTS, epochs=2))):
            training = make_training(method, CLIENTS, Plan(4, participation=0.6))
            training.run()
            found.append(training)
    for mine, other in zip(found[0].records, found[1].records, strict=True):
        assert mine["val"] == pytest.approx(other["val"], abs=1e-4)
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
    one, two = (training.engine.personal() for training in found)
    for name in one:
        if name != CENTROIDS:
            assert_near(one[name], two[name], 1e-4)


def test_each_type_is_averaged_over_those_who_have_links_of_it() -> None:
    method, n, kinds = make(types=2), len(CLIENTS), 2
    cohort = Cohort(CLIENTS)
    sent = method.local_update(method.start(cohort), cohort, {}, 0).upload
    uploads = {name: dense(value) for name, value in sent.items()}
    uploads = {name: w + numbers(i, *w.shape) if "model" in name else w for i, (name, w) in enumerate(uploads.items())}
    links = torch.tensor([[3.0, 0.0], [1.0, 2.0], [0.0, 0.0], [4.0, 1.0], [2.0, 5.0]])
    server, _ = method.server_start()
    everyone = torch.arange(n)
    common = numbers(50, kinds, uploads["model.centroids"].shape[2])
    server["common"].copy_(common)
    server["known"].fill_(True)
    answer = method.aggregate(server, {**uploads, TYPED_NODES: links}, everyone, everyone)
    down = {name: dense(value) for name, value in answer.items()}
    nodes = uploads["train_nodes"].double().numpy()
    for name in ("model.conv1.weight", "model.conv2.bias"):
        for j in range(kinds):
            total, weight = np.zeros(()), 0.0
            for m in range(n):
                own = uploads["model.centroids"][m]
                turned = torch.cat(own.chunk(2, dim=1)[::-1], dim=1)
                alike = torch.maximum(
                    *(
                        torch.nn.functional.normalize(s, dim=1) @ torch.nn.functional.normalize(common, dim=1).T
                        for s in (own, turned)
                    )
                )
                order = [0, 1] if alike[0, 0] + alike[1, 1] >= alike[1, 0] + alike[0, 1] else [1, 0]
                if links[m, order[j]] > 0:
                    total = total + nodes[m] * uploads[name][m, order[j]].double().numpy()
                    weight += nodes[m]
            np.testing.assert_allclose(down[name][j], total / weight, atol=2e-5)
    share = torch.from_numpy(nodes / nodes.sum()).float()
    mean = torch.einsum("m,m...->...", share, uploads["model.projection.weight"])
    assert_near(down["model.projection.weight"], mean, 1e-6)


def test_what_crosses_and_what_is_trained() -> None:
    method = make()
    training, tap = tapped_run(method, CLIENTS, 3, 0.8)
    names = {f"model.{name}" for name in method.shapes()}
    assert all(set(up) == names | {TYPED_NODES, "train_nodes"} for up in tap.ups)
    assert all(set(down) == names for down in tap.downs[1:])
    state = training.engine.parts[0].state
    assert not any(CENTROIDS in name for name in state if name.startswith("adam."))
    most = max(client.graph.nodes for client in CLIENTS)
    assert all(0 < float(up[TYPED_NODES].max()) <= most for up in tap.ups)


def test_types_differ_and_are_the_same_ones_everywhere() -> None:
    method = make(types=2)
    training = make_training(method, CLIENTS, Plan(6))
    training.run()
    found = [record["diagnostics"] for record in training.records]
    assert all(1.0 < each["effective_types"] <= 2.0 for each in found)
    assert found[-1]["types_kept"] == 1.0  # after the first round clients begin with the common ones
    assert found[-1]["centroid_agreement"] > found[0]["centroid_agreement"]


def test_types_act() -> None:
    """With the centroids of another type a link takes other layers, and outputs change."""
    method, cohort = make(types=2), Cohort(CLIENTS)
    state = method.start(cohort)
    method.local_update(state, cohort, {}, 0)
    personal = method.personal(state)
    turned = {**personal, CENTROIDS: personal[CENTROIDS].flip(1)}
    kinds = [assign(cohort, method.typed.project(cohort, w), w[CENTROIDS]).kind for w in (personal, turned)]
    assert torch.equal(kinds[0], 1 - kinds[1])
    assert links_of(cohort).count == len(kinds[0])
    assert not torch.allclose(method.logits(personal, cohort), method.logits(turned, cohort), atol=1e-3)


def test_centroids_stay_between_clusterings() -> None:
    method, cohort = make(refresh=2), Cohort(CLIENTS)
    state = method.start(cohort)
    sent = method.local_update(state, cohort, {}, 0).upload
    down = {name: dense(w)[0].clone() for name, w in sent.items() if name.startswith("model.")}
    for round, same in ((1, True), (2, False)):
        after = dense(method.local_update(state, cohort, {**down}, round).upload["model.centroids"])
        assert torch.equal(after, down["model.centroids"].expand_as(after)) == same


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": "sage"}, "a graph convolution for each type of links, which model=sage has not"),
        ({"types": 0}, "setting types"),
        ({"types": 7}, "setting types"),
        ({"refresh": 0}, "setting refresh"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedquiltError, match=sentence):
        make(**settings)
