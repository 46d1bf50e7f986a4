"""What methods that train with Adam share: gradients, the uploads that settings leave, and the shapes of personal models."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.methods.base import methods
from fedquilt.methods.base_adam import CLOCK, KEYS, AdamMethod, gradients_of, leaves_of
from support.federations import assert_same, make_method, make_task, ragged_clients

CLIENTS = ragged_clients((12, 9, 14))


def test_gradients_are_by_name_and_contiguous() -> None:
    weights = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2)}
    leaves = leaves_of(weights)
    total = (leaves["a"].T.square().sum() + (3 * leaves["b"]).sum()) / 2
    grads = gradients_of(total, leaves)
    assert torch.equal(grads["a"], weights["a"])
    assert grads["b"].tolist() == [1.5, 1.5]
    assert all(grad.is_contiguous() for grad in grads.values())
    assert not any(w.requires_grad for w in weights.values())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in methods() if name != "majority"),
        ("quilt", {"identity": 4, "masks": False}),
        ("quilt", {"model": "sage"}),
        ("fedpub", {"threshold": 0.5}),
        ("fedhero", {"learner": "glcn", "channels": 1}),
    ],
    ids=str,
)
def test_shapes_of_personal_models_are_known_without_data(name: str, settings: dict[str, Any]) -> None:
    method = make_method(name, CLIENTS, **settings)
    personal = method.personal(method.start(Cohort(CLIENTS)))
    assert method.personal_shapes() == {weight: tuple(w.shape[1:]) for weight, w in personal.items()}


@pytest.mark.parametrize(
    ("name", "settings", "sent"),
    [
        ("local", {}, []),
        ("fedavg", {}, ["model.*", "train_nodes"]),
        ("fedper", {}, ["model.conv*", "train_nodes"]),
        ("fedhero", {}, ["model.*", "nodes"]),
        ("fedhero", {"share": "none"}, []),
        ("quilt", {"share": "filter"}, ["filter", "train_nodes"]),
        ("fedpub", {"similarity": "label"}, ["model.*", "label_share"]),
    ],
    ids=str,
)
def test_settings_decide_which_declared_uploads_are_sent(name: str, settings: dict[str, Any], sent: list[str]) -> None:
    assert [spec.name for spec in make_method(name, CLIENTS, **settings).sent_uploads()] == sent


def test_steps_are_numbered_through_a_clients_whole_training() -> None:
    """So that dropout of round r does not depend on whether the rounds before it were run here."""
    method = make_method("fedavg", CLIENTS, make_task(CLIENTS, epochs=2))
    assert isinstance(method, AdamMethod)
    assert [list(method.steps(round)) for round in (0, 3)] == [[0, 1], [6, 7]]
    cohort = Cohort(CLIENTS)
    whole, late = method.start(cohort), method.start(cohort)
    method.local_update(whole, cohort, {}, 3)
    late[CLOCK] += 5  # whatever it was before
    method.local_update(late, cohort, {}, 3)
    assert_same(whole, late)
    assert whole[CLOCK].tolist() == [8] * 3
    assert len(set(whole[KEYS].tolist())) == 3
