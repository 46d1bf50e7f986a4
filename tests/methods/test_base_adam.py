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
        ("quilt", {"share": "filter"}, ["filter", "votes", "train_nodes"]),
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


@pytest.mark.parametrize("name", ["fedavg", "fedrep", "fedsheafhn"])
def test_a_straggler_does_the_first_of_its_steps(name: str) -> None:
    """What it has then is what it would have had on its way, with the same random numbers; the others are not affected."""
    method = make_method(name, CLIENTS, make_task(CLIENTS, epochs=4))
    assert isinstance(method, AdamMethod)
    planned, cohort = method.local_steps(0), Cohort(CLIENTS)
    whole, part = method.start(cohort), method.start(cohort)
    method.local_update(whole, cohort, {}, 0)
    cohort.efforts = [1.0, 0.5, 0.01]
    taken = [planned, planned // 2, 1]
    assert method.steps_taken(cohort, planned) == taken
    method.local_update(part, cohort, {}, 0)
    cohort.efforts = None
    for place, count in enumerate(taken):
        way = method.start(cohort)
        method.train(way, cohort, {}, range(count))
        for key in (key for key in way if key.startswith(("model.", "first.", "second."))):
            right = whole if count == planned else way
            assert torch.allclose(part[key][place], right[key][place], atol=1e-6), (key, place)


def test_a_straggler_with_epochs_of_its_own_does_a_share_of_these() -> None:
    clients = ragged_clients((12, 9, 14))
    clients[1].settings["epochs"] = 6
    method = make_method("fedavg", clients, make_task(clients, epochs=2))
    assert isinstance(method, AdamMethod)
    cohort = Cohort(clients)
    assert method.steps_taken(cohort, 2) == [2, 6, 2]
    assert method.first_steps(cohort, range(4, 6)).tolist() == [4, 12, 4]
    cohort.efforts = [0.5, 0.5, 1.0]
    assert method.steps_taken(cohort, 2) == [1, 3, 2]
    assert method.first_steps(cohort, range(4, 6)).tolist() == [4, 12, 4]  # as if it did all
    own = method.own_epochs(cohort)
    assert own is not None
    assert own.tolist() == [1.0, 3.0, 2.0]
