"""Methods on a usual graph network: the network that the settings name, its loss's gradient, and its outputs."""

from __future__ import annotations

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import Model
from fedquilt.tasks.node_classification import losses
from support.clients import assert_near
from support.federations import make_method, ragged_clients

CLIENTS = ragged_clients((12, 9, 14))


@pytest.mark.parametrize("kind", sorted(Model.kinds))
def test_the_network_is_the_one_that_the_settings_name(kind: str) -> None:
    method = make_method("local", CLIENTS, model=kind, hidden=12)
    assert isinstance(method, BackboneMethod)
    assert isinstance(method.model, Model.kinds[kind])
    assert method.shapes() == Model.kinds[kind](10, 12, 3).shapes()


def test_gradients_are_those_of_the_training_loss() -> None:
    method = make_method("local", CLIENTS, dropout=0.0)
    cohort = Cohort(CLIENTS)
    state = method.start(cohort)
    grads, each = method.gradients(state, cohort, Dropout(0.0, state["dropout.key"], 0), {})
    leaves = {name: w.clone().requires_grad_() for name, w in method.personal(state).items()}
    expected = losses(cohort, method.logits(leaves, cohort), cohort.train)
    assert_near(each, expected.detach())
    expected.sum().backward()
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        assert_near(grads["model." + name], leaf.grad, 1e-5)


def test_outputs_are_differentiable_in_the_weights() -> None:
    method, cohort = make_method("fedavg", CLIENTS), Cohort(CLIENTS)
    weights = {name: w.requires_grad_() for name, w in method.personal(method.start(cohort)).items()}
    assert method.logits(weights, cohort).requires_grad
    with torch.no_grad():
        assert not method.logits(weights, cohort).requires_grad
