"""FedTAD: phases, distillation against plain formulas, and that the student learns from its teachers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import dense
from fedquilt.methods.fedtad import RELIABILITY, FedTAD, divergence, effective_teachers, recognition
from fedquilt.training.plan import Plan
from support.clients import assert_near, numbers
from support.federations import (
    assert_same,
    assert_same_training,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    tapped_run,
)

CLIENTS = ragged_clients()
SMALL = {"pseudo_nodes": 12, "neighbours": 2, "noise": 4}


def make(rounds: int = 4, **settings: Any) -> FedTAD:
    method = make_method("fedtad", CLIENTS, make_task(CLIENTS, rounds=rounds), **(SMALL | settings))
    assert isinstance(method, FedTAD)
    return method


def uploads_of(method: FedTAD, round: int = 3) -> dict[str, Tensor]:
    """What clients send, with models that differ."""
    cohort = Cohort(CLIENTS)
    state = method.start(cohort)
    found = {name: dense(value) for name, value in method.local_update(state, cohort, {}, round).upload.items()}
    return {
        n: v + 0.3 * numbers(i, *v.shape) if n.startswith("model.") else v for i, (n, v) in enumerate(found.items())
    }


def aggregated(method: FedTAD, uploads: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    server, _ = method.server_start()
    everyone = torch.arange(len(CLIENTS))
    down = method.aggregate(server, {**uploads}, everyone, everyone)
    return {name: dense(value) for name, value in down.items()}, server


def test_at_first_it_only_averages_then_it_distils() -> None:
    method = make(rounds=5, start_rounds=2)
    assert [(p.name, p.rounds) for p in method.phases(5)] == [("averaging", 2), ("distillation", 3)]
    assert [(p.name, p.rounds) for p in method.phases(1)] == [("distillation", 1)]
    training, tap = tapped_run(method, CLIENTS, 5, 0.8)
    assert [RELIABILITY in up for up in tap.ups] == [False, False, True, True, True]
    assert [record["phase"] for record in training.records] == ["averaging"] * 2 + ["distillation"] * 3
    changes = [record["diagnostics"]["student_change"] for record in training.records]
    assert changes[:2] == [0.0, 0.0]
    assert all(change > 0 for change in changes[2:])
    for up, down, distilled in zip(tap.ups, tap.downs[1:], [False, False, True, True], strict=False):
        share = up["train_nodes"] / up["train_nodes"].sum()
        near = [torch.allclose(w, torch.einsum("m,m...->...", share, up[n]), atol=1e-6) for n, w in down.items()]
        assert all(near) != distilled


def test_losses_are_sums_over_teachers_and_classes() -> None:
    teachers, nodes, classes = 3, 8, 2
    taught, learned = numbers(1, teachers, nodes, classes), numbers(2, nodes, classes)
    label = np.arange(nodes) * classes // nodes
    share = np.abs(numbers(3, teachers, classes).numpy())
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(label), classes).float()
    weight = torch.from_numpy(share) @ (one_hot / one_hot.sum(0)).T
    expected = known = 0.0
    for m in range(teachers):
        for c in range(classes):
            own = label == c
            expected += share[m, c] * float((learned[own] - taught[m][own]).abs().mean(1).mean())
            target = torch.from_numpy(label[own])
            known += share[m, c] * float(torch.nn.functional.cross_entropy(taught[m][own], target))
    assert float(divergence(learned, taught, weight)) == pytest.approx(expected, rel=0.02)  # rounded off near zero
    far = divergence(learned + 1e3, taught, weight) - divergence(learned + 5e2, taught, weight)
    assert float(far) == pytest.approx(5e2 * float(weight.sum()), rel=1e-4)
    assert float(recognition(taught, one_hot, weight)) == pytest.approx(known, rel=1e-5)


def test_shares_of_a_class_sum_to_one_where_anybody_knows_it() -> None:
    said = torch.tensor([[3.0, 0.0, torch.nan], [1.0, 0.0, 2.0]])
    assert_near(make().shares_of(said), torch.tensor([[0.75, 0.0, 0.0], [0.25, 0.0, 1.0]]), 1e-6)
    assert_near(make(reliability="equal").shares_of(said), torch.full((2, 3), 0.5), 1e-6)
    turned = make(reliability="shuffled").shares_of(said)
    assert_near(turned, torch.tensor([[0.25, 0.0, 1.0], [0.75, 0.0, 0.0]]), 1e-6)
    even = torch.tensor([[0.5, 1.0, 0.0], [0.5, 0.0, 0.0]])
    assert float(effective_teachers(even)) == pytest.approx((2.0 + 1.0) / 2)


def test_the_student_comes_nearer_to_its_teachers() -> None:
    """On a pseudo graph that the last distillation did not see, and within each of them."""
    method = make(student_lr=0.01, student_steps=20)
    uploads = uploads_of(method)
    down, server = aggregated(method, uploads)
    assert server["diagnostic.divergence_after"] < 0.9 * server["diagnostic.divergence_before"]
    teachers = {name.removeprefix("model."): w for name, w in uploads.items() if name.startswith("model.")}
    count = uploads["train_nodes"]
    mean = {name: torch.einsum("m,m...->...", count / count.sum(), w) for name, w in teachers.items()}
    generator = {n.removeprefix("generator."): w for n, w in server.items() if n.startswith("generator.")}
    _, nodes = method.pseudo(generator, numbers(9, 12, 4), server["labels"])
    rows, one = method.layout(len(CLIENTS), torch.device("cpu")), method.layout(1, torch.device("cpu"))
    weight = method.shares_of(uploads[RELIABILITY]) @ (server["labels"] / server["labels"].sum(0)).T
    with torch.no_grad():
        taught = method.outputs(rows, nodes, teachers)
        before, after = (
            float(
                divergence(
                    method.outputs(one, nodes, {n: w.unsqueeze(0) for n, w in student.items()})[0], taught, weight
                )
            )
            for student in (mean, {name.removeprefix("model."): w for name, w in down.items()})
        )
    assert after < before


@pytest.mark.parametrize(
    ("semantic", "figure"), [(0.0, "divergence_after"), (20.0, "pseudo_accuracy")], ids=["apart", "known"]
)
def test_the_generator_finds_nodes_where_models_differ_and_that_they_recognise(semantic: float, figure: str) -> None:
    """Without a student that follows, each term of the generator's loss gets what it asks for, where it alone counts."""
    method = make(student_steps=0, generator_steps=5, generator_lr=0.01, diversity=0.0, semantic=semantic)
    uploads = uploads_of(method)
    server, _ = method.server_start()
    everyone = torch.arange(len(CLIENTS))
    found = []
    for _ in range(6):
        method.aggregate(server, {**uploads}, everyone, everyone)
        found.append(float(server["diagnostic." + figure]))
    assert found[-1] > found[0]


@pytest.mark.parametrize("setting", [{"reliability": "shuffled"}, {"reliability": "equal"}, {"diversity": 0.0}])
def test_what_the_server_weighs_by_matters(setting: dict[str, Any]) -> None:
    uploads = uploads_of(make())
    one, two = aggregated(make(), uploads)[0], aggregated(make(**setting), uploads)[0]
    assert any(not torch.equal(one[name], two[name]) for name in one)


def test_without_student_steps_it_is_fedavg() -> None:
    trainings = []
    for method in (make(rounds=3, student_steps=0), make_method("fedavg", CLIENTS, make_task(CLIENTS, rounds=3))):
        training = make_training(method, CLIENTS, Plan(3))
        training.run()
        trainings.append(training)
    assert_same(trainings[0].engine.personal(), trainings[1].engine.personal())


def test_noise_goes_on_where_it_stopped() -> None:
    """Two servers of the same state do the same; one round later they do something else."""
    method, uploads, everyone = make(), uploads_of(make()), torch.arange(len(CLIENTS))
    server, _ = method.server_start()
    method.aggregate(server, {**uploads}, everyone, everyone)
    copy = {name: value.clone() for name, value in server.items()}
    one = method.aggregate(server, {**uploads}, everyone, everyone)
    two = make().aggregate(copy, {**uploads}, everyone, everyone)
    assert_same({name: dense(w) for name, w in one.items()}, {name: dense(w) for name, w in two.items()})
    assert int(server["noise.turn"]) == 2 * method.settings.distillations


def test_models_that_are_noise_give_finite_weights() -> None:
    method = make()
    wild = {n: 1e4 * v if n.startswith("model.") else -v for n, v in uploads_of(method).items()}
    down, server = aggregated(method, wild)
    assert all(torch.isfinite(w).all() for w in [*down.values(), *server.values()])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pseudo_nodes": 2, "neighbours": 1}, "pseudo_nodes=2 is less than the 3 classes"),
        ({"neighbours": 12}, "cannot be joined with neighbours=12 others"),
        ({"reliability": "random"}, "setting reliability"),
        ({"start_rounds": -1}, "setting start_rounds"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedquiltError, match=sentence):
        make(**settings)


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "mlp"])
def test_any_backbone_trains_and_again_the_same(model: str) -> None:
    one, two = (make_training(make(model=model), CLIENTS, Plan(4)) for _ in range(2))
    one.run()
    two.run()
    assert_same_training(one, two)
    assert all(torch.isfinite(w).all() for w in one.engine.personal().values())
