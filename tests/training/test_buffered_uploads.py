"""Asynchronous rounds: FedBuff by NumPy, who is busy, a resume, and which methods can do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.messages.message import dense
from fedquilt.methods.base import methods
from fedquilt.runs.folder import SeedFolder
from fedquilt.training.attendance import Attendance, Conditions
from fedquilt.training.buffered_uploads import check_buffers
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import (
    Wiretap,
    assert_same_training,
    averaging_settings,
    make_method,
    make_task,
    make_training,
    ragged_clients,
)


def can_wait(name: str, **settings: Any) -> bool:
    try:
        check_buffers(make_method(name, ragged_clients(), **settings))
    except FedquiltError as error:
        return not str(error).startswith("Asynchronous rounds are for methods that send all clients the same")
    return True


ABLE = [name for name in methods() if can_wait(name, **averaging_settings(name))]
LATE = Conditions(upload_delay=2, buffer=3)


def training(name: str, conditions: Conditions = LATE, rounds: int = 6, share: float = 0.6, **options: Any) -> Training:
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, epochs=2, rounds=rounds), **averaging_settings(name))
    return make_training(
        method, clients, Plan(rounds, share, checkpoint_seconds=-1.0, conditions=conditions), **options
    )


def test_rounds_equal_fedbuff_by_numpy() -> None:
    trained = training("fedavg", Conditions(drop_out=0.2, upload_delay=2, buffer=3), rounds=9)
    tap, attendance = Wiretap(trained.engine), trained.runner.attendance
    names = [name for name in trained.down if name.startswith("model.")]
    w = {name: dense(trained.down[name]).double().numpy() for name in names}
    way: list[tuple[int, int, dict[str, np.ndarray], float]] = []  # round of arrival, version, change, training nodes
    version, stale = 0, 0
    for r in range(9):
        trained.advance(1)
        here = attendance.at(r)
        for place, client in enumerate(here.participants.tolist()):
            if client in here.arrived.tolist():
                sent = tap.ups[-1]  # of this round, as it has participants
                change = {n: sent[n][place].double().numpy() - w[n] for n in names}
                way.append((int(here.arrives[place]), version, change, float(sent["train_nodes"][place])))
        come = [each for each in way if each[0] <= r]
        record = trained.records[-1]
        assert record.get("aggregated", 0) == (len(come) if len(come) >= 3 else 0)
        if len(come) >= 3:
            way = [each for each in way if each[0] > r]
            nodes = np.array([each[3] for each in come])
            discount = np.array([1 / np.sqrt(1 + version - each[1]) for each in come])
            stale += sum(each[1] < version for each in come)
            assert record["staleness"] == pytest.approx(np.mean([version - each[1] for each in come]))
            for n in names:
                steps = np.stack([d * each[2][n] for d, each in zip(discount, come, strict=True)])
                w[n] = w[n] + np.tensordot(nodes / nodes.sum(), steps, axes=1)
            version += 1
        for n in names:
            assert_near(trained.down[n], torch.from_numpy(w[n]))
    assert version >= 2
    assert stale >= 2


@pytest.mark.parametrize(
    "name",  # nothing pulls in FedProx's first round otherwise
    [
        pytest.param(name, marks=[] if name in ("fedper", "fednova", "quilt") else [pytest.mark.long])
        for name in ABLE
        if name != "fedprox"
    ],
)
def test_without_delay_and_with_room_for_all_it_is_synchronous(name: str) -> None:
    at_once, usual = training(name, Conditions(buffer=3), 3), training(name, Conditions(), 3)
    for one in (at_once, usual):
        one.run()
    assert set(at_once.down) == set(usual.down)
    for weight, value in usual.down.items():
        assert_near(at_once.down[weight], dense(value), 1e-4)
    for weight, value in usual.engine.personal().items():
        assert_near(at_once.engine.personal()[weight], value, 1e-4)


@pytest.mark.parametrize("name", ["quilt", "feddyn"])
def test_a_resume_finds_what_is_on_its_way(name: str, tmp_path: Path) -> None:
    whole = training(name)
    whole.run()
    first = training(name, store=SeedFolder(tmp_path))
    first.advance(3)
    assert any(key.startswith("buffered.upload") for key in first.server)
    resumed = training(name, store=SeedFolder(tmp_path), cohort_size=None)
    resumed.run()
    assert_same_training(resumed, whole)


def test_nobody_is_asked_while_its_upload_is_on_its_way() -> None:
    attendance = Attendance(0, 10, 1.0, Conditions(upload_delay=3), lambda round: 1)
    until: dict[int, int] = {}
    for r in range(60):
        here = attendance.at(r)
        assert here.participants.tolist() == [m for m in range(10) if until.get(m, -1) < r]
        until |= dict(zip(here.participants.tolist(), here.arrives.tolist(), strict=True))
        assert all(r <= comes <= r + 3 for comes in here.arrives.tolist())


def test_a_round_may_have_nobody() -> None:
    trained = training("fedavg", Conditions(upload_delay=5, buffer=2), rounds=8, share=0.2)
    trained.run()
    empty = [record for record in trained.records if record["participants"] == []]
    assert empty
    for record in empty:
        assert record["bytes_up"] == {}
        assert record["val"] is not None


def test_methods_with_one_average_can_and_others_are_refused() -> None:
    plain = (
        "apfl",
        "ditto",
        "fedavg",
        "feddyn",
        "fedhero",
        "fednova",
        "fedper",
        "fedprox",
        "fedrep",
        "fedsage",
        "fedstar",
    )
    assert {*plain, "quilt"} <= set(ABLE)
    assert not can_wait("quilt")  # it sends gradients
    personal = (
        "fedpub",
        "fediih",
        "fedssa",
        "fedsheafhn",
        "pfedhn",
        "pfedgraph",
        "gcfl",
        "gcflplus",
        "fedgta",
        "fedgnn",
    )
    phased = (
        "fedsageplus",
        "adafgl",
        "fedtad",
        "fedlit",
        "fedproto",
        "scaffold",
        "centralised",
        "local",
        "mlp",
        "majority",
    )
    assert not {*personal, *phased} & set(ABLE)
