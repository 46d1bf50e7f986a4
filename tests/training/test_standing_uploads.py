"""What the server has for newcomers: the last download of all, and the clients' uploads as their states have them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.methods.base import LAST_SENT, STANDING
from fedquilt.runs.folder import SeedFolder
from fedquilt.scenarios.attacks import Attack
from fedquilt.training.client_sampling import participants
from fedquilt.training.plan import Plan
from fedquilt.training.standing_uploads import server_for_newcomers, standing_uploads
from support.federations import Wiretap, assert_same, copied, make_method, make_training, ragged_clients

KEEPING = ("fedpub", "fediih", "fedgta", "pfedgraph")


@pytest.mark.parametrize("name", KEEPING)
def test_they_are_what_was_sent_last(name: str) -> None:
    clients = ragged_clients()
    training = make_training(make_method(name, clients), clients, Plan(2), cohort_size=2)
    tap = Wiretap(training.engine)
    training.run()
    found = standing_uploads(training, training.engine.cohorts)
    assert_same(copied(found), tap.ups[-1])
    for size in (1, 5):  # whatever cohorts compute them
        again = standing_uploads(training, (Cohort(clients[m : m + size]) for m in range(0, 5, size)))
        for tensor_name, tensor in found.items():
            assert torch.allclose(tensor, again[tensor_name], atol=1e-6), tensor_name


def test_clients_that_never_trained_are_left_out() -> None:
    clients = ragged_clients()
    training = make_training(make_method("pfedgraph", clients), clients, Plan(2, participation=0.3))
    training.run()
    here = sorted({m for round in (0, 1) for m in participants(3, round, 5, 0.3).tolist()})
    assert len(here) < 5
    found = standing_uploads(training, training.engine.cohorts)
    assert found["train_nodes"].tolist() == training.engine.cohorts[0].train_count[here].tolist()
    state = training.engine.state()
    assert torch.equal(found["model.conv1.weight"], state["model.conv1.weight"][here])


def test_a_training_that_is_resumed_after_its_last_round_has_the_same(tmp_path: Path) -> None:
    clients = ragged_clients()

    def train(store: SeedFolder | None) -> dict[str, torch.Tensor]:
        plan = Plan(2, checkpoint_seconds=-1.0)
        training = make_training(make_method("fedpub", clients), clients, plan, store=store)
        training.run()
        return server_for_newcomers(training, training.engine.cohorts)

    whole = train(None)
    train(SeedFolder(tmp_path))
    assert_same(train(SeedFolder(tmp_path)), whole)


def test_attackers_send_what_they_would() -> None:
    clients = ragged_clients()
    attack = Attack("flip", 2.0, frozenset({1}), 3)
    training = make_training(make_method("pfedgraph", clients), clients, Plan(2), upload_transforms=[attack])
    training.run()
    found, state = standing_uploads(training, training.engine.cohorts), training.engine.state()
    assert torch.equal(found["model.conv1.weight"][1], -2.0 * state["model.conv1.weight"][1])
    assert torch.equal(found["model.conv1.weight"][0], state["model.conv1.weight"][0])


def test_of_what_was_sent_only_what_all_share_is_there() -> None:
    clients = ragged_clients()
    for name, shared in (("fedavg", True), ("fedgta", False)):
        training = make_training(make_method(name, clients), clients, Plan(2))
        training.run()
        found = server_for_newcomers(training, training.engine.cohorts)
        assert any(key.startswith(LAST_SENT) for key in found) is shared
        assert any(key.startswith(STANDING) for key in found) is not shared
    assert set(training.server) < set(found)
