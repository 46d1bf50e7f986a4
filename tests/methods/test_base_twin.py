"""What methods with a second model a client share: its start, its own clipping, and how far apart the two are."""

from __future__ import annotations

import torch

from fedquilt.cohort.cohort import Cohort
from support.federations import make_method, ragged_clients

CLIENTS = ragged_clients((12, 9, 14))


def test_both_models_start_alike_and_train_apart() -> None:
    method = make_method("ditto", CLIENTS)
    state = method.start(Cohort(CLIENTS))
    for name in method.shapes():
        one, two = state[f"model.{name}"], state[f"personal.{name}"]
        assert torch.equal(one, two)
        assert one.data_ptr() != two.data_ptr()
        assert {f"adam.first.model.{name}", f"adam.first.personal.{name}"} <= set(state)


def test_each_models_gradient_is_cut_by_its_own_norm() -> None:
    method = make_method("ditto", CLIENTS)
    grads = {"model.a": torch.tensor([[3.0], [0.5]]), "model.b": torch.tensor([[4.0], [0.0]])}
    grads |= {"personal.a": torch.tensor([[0.6], [30.0]]), "alpha": torch.tensor([7.0, 7.0])}
    method.clip(grads, 1.0)
    assert torch.allclose(grads["model.a"], torch.tensor([[0.6], [0.5]]))
    assert torch.allclose(grads["model.b"], torch.tensor([[0.8], [0.0]]))
    assert torch.allclose(grads["personal.a"], torch.tensor([[0.6], [1.0]]))
    assert grads["alpha"].tolist() == [7.0, 7.0]


def test_the_distance_is_relative_to_the_averaged_model() -> None:
    method = make_method("ditto", CLIENTS)
    state = {"model.a": torch.tensor([[3.0, 4.0], [1.0, 0.0]]), "model.b": torch.tensor([[0.0], [1.0]])}
    state |= {"personal.a": torch.tensor([[3.0, 4.0], [1.0, 0.0]]), "personal.b": torch.tensor([[5.0], [1.0]])}
    assert method.distance(state).tolist() == [1.0, 0.0]
