"""Where some clients sit out, methods that average for each client do so over what everyone sent last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedquilt.federation.coordinator.finite_aggregation import FiniteAggregation
from fedquilt.messages.message import Message, Sparse, dense
from fedquilt.methods.averaging import Averaging
from fedquilt.methods.base import State, methods
from fedquilt.runs.folder import SeedFolder
from fedquilt.scenarios.robust_aggregation import RobustAverage
from fedquilt.training.attendance import Attendance, Conditions
from fedquilt.training.loop import Training
from fedquilt.training.newest_uploads import HEARD, NEWEST, NewestUploads
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import (
    Wiretap,
    assert_same,
    assert_same_training,
    make_method,
    make_training,
    newest_uploads,
    ragged_clients,
    tapped_run,
)

NAMES = [name for name, method in methods().items() if method.averages_newest]
SOME = Plan(6, 0.4, checkpoint_seconds=-1.0, conditions=Conditions(leave=0.2, leave_round=4))


class Noting:
    """Stands for a method: notes what its server is given, and sends everyone the sum."""

    def __init__(self, clients: int = 4) -> None:
        self.uploads = methods()["fedavg"].uploads
        self.context = type("Context", (), {"clients": clients})
        self.given: list[tuple[Message, list[int]]] = []

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        self.given.append((uploads, senders.tolist()))
        if bool((dense(uploads["model.w"]) > 1000).any()):
            raise ArithmeticError("too large")
        return {"model.w": dense(uploads["model.w"]).sum(0).expand(len(receivers), -1)}


def training(name: str, plan: Plan = SOME, **options: Any) -> Training:
    clients = ragged_clients()
    return make_training(make_method(name, clients), clients, plan, **options)


def test_those_that_average_for_each_client_do_it() -> None:
    assert NAMES == ["fedgta", "fediih", "pfedgraph"]
    assert all(methods()[name].single_uploads for name in NAMES)  # no sum of uploads is enough


@pytest.mark.parametrize("name", NAMES)
def test_the_server_keeps_what_each_sent_last(name: str) -> None:
    clients = ragged_clients()
    trained, tap = tapped_run(make_method(name, clients), clients, 6, 0.4)
    *_, (heard, last) = newest_uploads(trained, tap)
    assert torch.nonzero(trained.server[HEARD]).ravel().tolist() == heard
    assert trained.runner.attendance.heard(5).tolist() == heard
    assert {n.removeprefix(NEWEST) for n in trained.server if n.startswith(NEWEST)} == set(last)
    for upload, rows in last.items():
        assert_near(trained.server[NEWEST + upload][heard], torch.from_numpy(rows))


@pytest.mark.parametrize("name", NAMES)
def test_with_everyone_nothing_is_kept_and_nothing_is_different(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = training(name, Plan(3))
    usual.run()
    assert usual.runner.newest is None
    assert not any(key.startswith(NEWEST) for key in usual.server)
    monkeypatch.setattr(type(usual.engine), "clients_are_private", True)  # as sites, which may not answer
    kept = training(name, Plan(3))
    monkeypatch.undo()
    kept.run()
    assert kept.runner.newest is not None
    assert kept.server[HEARD].all()
    assert_same(kept.engine.state(), usual.engine.state())
    assert_same({n: dense(v) for n, v in kept.down.items()}, {n: dense(v) for n, v in usual.down.items()})


@pytest.mark.parametrize("name", NAMES)
def test_a_resume_has_what_everyone_sent_last(name: str, tmp_path: Path) -> None:
    whole = training(name)
    whole.run()
    first = training(name, store=SeedFolder(tmp_path))
    first.advance(3)
    assert not first.server[HEARD].all()  # somebody is heard for the first time after the resume
    resumed = training(name, store=SeedFolder(tmp_path))
    resumed.run()
    assert_same_training(resumed, whole)
    assert_same(resumed.server, whole.server)


def test_who_does_not_answer_counts_with_its_last_upload() -> None:
    method = Noting()
    newest, server = NewestUploads(method), {}  # type: ignore[arg-type, var-annotated]
    rows = torch.arange(8.0).view(4, 2)
    newest.aggregate(server, {"model.w": rows, "n": torch.ones(4)}, torch.arange(4), torch.arange(4))
    assert dense(method.given[0][0]["model.w"]) is rows  # everyone answered: as they are
    new = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    down = newest.aggregate(server, {"model.w": new, "n": torch.full((2,), 5.0)}, torch.tensor([0, 3]), torch.arange(1))
    uploads, senders = method.given[1]
    assert senders == [0, 1, 2, 3]
    assert dense(uploads["model.w"]).tolist() == [[10, 20], [2, 3], [4, 5], [30, 40]]
    assert dense(uploads["n"]).tolist() == [5, 1, 1, 5]
    assert dense(down["model.w"]).tolist() == [[46, 68]]


def test_who_never_sent_is_left_out() -> None:
    method = Noting()
    newest, server = NewestUploads(method), {}  # type: ignore[arg-type, var-annotated]
    for sender in (2, 0, 2):
        newest.aggregate(
            server, {"model.w": Sparse(torch.full((1, 2), 7.0 + sender))}, torch.tensor([sender]), torch.arange(2)
        )
    uploads, senders = method.given[-1]
    assert senders == [0, 2]
    assert isinstance(uploads["model.w"], Sparse)
    assert uploads["model.w"].tensor.tolist() == [[7, 7], [9, 9]]
    assert server[HEARD].tolist() == [True, False, True, False]


def test_an_upload_that_leads_to_nothing_finite_is_not_kept() -> None:
    """The one before it stays, and the next round does not meet it again."""
    method, unused = Noting(3), []
    newest, server = NewestUploads(method), {}  # type: ignore[arg-type, var-annotated]
    step = FiniteAggregation(method, lambda m, why: unused.append(m), newest.aggregate)  # type: ignore[arg-type]
    step(server, {"model.w": torch.ones(3, 2)}, torch.arange(3), torch.arange(3))
    bad = torch.tensor([[2000.0, 0.0], [2.0, 2.0]])
    down = step(server, {"model.w": bad}, torch.tensor([0, 1]), torch.arange(3))
    assert unused == [0]
    assert dense(down["model.w"])[0].tolist() == [4, 4]
    assert server[NEWEST + "model.w"].tolist() == [[1, 1], [2, 2], [1, 1]]


@pytest.mark.parametrize("rule", [RobustAverage("median"), RobustAverage("clipped")], ids=["median", "clipped"])
def test_a_robust_rule_is_over_what_everyone_sent_last(rule: Averaging) -> None:
    clients = ragged_clients()
    method = make_method("fediih", clients, averaging=rule)
    trained, tap = tapped_run(method, clients, 5, 0.4)
    for down, (_, last) in zip(tap.downs[1:], newest_uploads(trained, tap), strict=False):
        expected = rule.average(torch.from_numpy(last["model.classifier.bias"]))
        assert_near(dense(down["model.classifier.bias"])[0], expected)


@pytest.mark.parametrize("name", NAMES)
def test_who_returns_has_itself_in_its_average(name: str) -> None:
    """With a sharp comparison its own model is all of it, also after rounds in which it sat out."""
    clients = ragged_clients()
    sharp: dict[str, dict[str, Any]] = {
        "fediih": {"tau": 1e6, "scale": "absolute"},
        "pfedgraph": {"alpha": 1e-6},
        "fedgta": {"similarity_threshold": 0.9999999},
    }
    trained = make_training(make_method(name, clients, **sharp[name]), clients, Plan(8, 0.4))
    tap = Wiretap(trained.engine)
    trained.run()
    parts, back = [r["participants"] for r in trained.records], 0
    for r, (heard, last) in enumerate(newest_uploads(trained, tap)):
        for place, m in enumerate(parts[r + 1] if r + 1 < len(parts) else []):
            if m in heard and m not in parts[r]:
                down = dense(tap.downs[r + 1]["model.classifier.weight"])[place]
                assert_near(down, torch.from_numpy(last["model.classifier.weight"][heard.index(m)]), 1e-3)
                back += 1
    assert back > 2


def test_who_was_heard_is_drawn_from_the_seed() -> None:
    one, two = (Attendance(1, 10, 0.3, Conditions(drop_out=0.3), lambda round: 1) for _ in range(2))
    later = one.heard(20)
    assert (
        one.heard(3).tolist()
        == two.heard(3).tolist()
        == sorted({m for r in range(4) for m in two.at(r).arrived.tolist()})
    )
    assert later.tolist() == list(range(10))
