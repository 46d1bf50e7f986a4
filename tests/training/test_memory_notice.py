"""What is said about memory before a training starts: nothing, how much, a warning, or a refusal."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from benchmarks.memory import Point, make_method, random_clients

from fedquilt.devices.room import Room
from fedquilt.errors import MachineLimitError
from fedquilt.methods.base import find_method
from fedquilt.training import memory_notice
from fedquilt.training.engines.registry import EngineOptions
from fedquilt.training.memory_notice import announce_memory
from support.cli import SMALL

MB = 10**6


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Let the machine have so many MB free, and so many in all; nothing is too small to be estimated."""
    monkeypatch.setattr(memory_notice, "SMALL", 0)

    def have(free: float, most: float) -> None:
        monkeypatch.setattr(memory_notice, "room_of", lambda device: Room(int(free * MB), int(most * MB)))

    return have


def announced(caplog: pytest.LogCaptureFixture, point: Point, device: str = "cpu") -> tuple[int, str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="fedquilt"):
        options = EngineOptions(torch.device(device), point.cohort_size or None)
        announce_memory(make_method(point), random_clients(point), options, point.participation)
    (record,) = caplog.records
    return record.levelno, record.getMessage()


def test_what_fits_is_said(room: Callable, caplog: pytest.LogCaptureFixture) -> None:
    room(10_000, 20_000)
    level, said = announced(caplog, Point("fedavg", clients=10, nodes=30, features=20, hidden=8))
    assert level == logging.INFO
    assert said.startswith("Training needs about ")
    assert "9.3 GiB are free." in said


@pytest.mark.parametrize(
    ("point", "device", "advice"),
    [
        (Point("fedavg", clients=10, nodes=300, features=8, hidden=128), "cpu", "--cohort-size 5"),
        (Point("fedavg", clients=10, nodes=10, features=300, hidden=64), "cpu", "--cohort-size 5 large states are kept"),
        (Point("fedavg", clients=10, nodes=10, features=300, hidden=64), "cuda", "or --device cpu"),
        (Point("fediih", clients=60, nodes=10, features=8, hidden=16), "cpu", "fewer clients, a lower --participation"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_a_warning_with_advice(
    room: Callable, caplog: pytest.LogCaptureFixture, point: Point, device: str, advice: str
) -> None:
    room(20, 20_000)
    level, said = announced(caplog, point, device)
    assert level == logging.WARNING
    assert "19.1 MiB are free; " in said
    assert advice in said


def test_states_that_cannot_fit_are_refused_before_anything_is_written(
    room: Callable, call: Callable, here: Path
) -> None:
    room(0.01, 0.02)
    called = call(f"run -m fedavg {SMALL} -q --out made")
    assert called.status == 3
    assert "states and models take" in called.sentence
    assert called.sentence.endswith("or use fewer clients or a smaller model.")  # to resume would be refused again
    assert not (here / "made").exists()
    room(10_000, 20_000)
    assert call(f"run -m fedavg {SMALL} -q --out made").status == 0


def test_the_command_line_shows_it_unless_it_is_quiet_and_warnings_always(room: Callable, call: Callable) -> None:
    room(10_000, 20_000)
    assert "Training needs about" in call(f"run -m fedavg {SMALL}").err
    assert call(f"run -m fedavg {SMALL} -q").err == ""
    room(1, 20_000)
    assert "are free; " in call(f"run -m fedavg {SMALL} -q").err
    assert not logging.getLogger("fedquilt").handlers


def test_small_trainings_are_not_estimated(monkeypatch: pytest.MonkeyPatch, call: Callable) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(memory_notice, "estimate_memory", fail)
    assert call(f"run -m fediih {SMALL} -q").err == ""


def test_what_cannot_be_tried_does_not_stop_a_training(
    room: Callable, call: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    room(10_000, 20_000)

    def fail(self: object, sizes: object) -> int:
        raise KeyError("mine")

    monkeypatch.setattr(find_method("fedavg"), "server_memory", fail)
    called = call(f"run -m fedavg {SMALL}")
    assert called.status == 0
    assert "not known (KeyError)" in called.err


def test_no_room_is_known(room: Callable, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_notice, "room_of", lambda device: None)
    level, said = announced(caplog, Point("local", clients=4, nodes=20, features=8, hidden=8))
    assert level == logging.INFO
    assert "are free" not in said


def test_a_refusal_lasts() -> None:
    assert MachineLimitError("No.", lasting=True).lasting
    assert not MachineLimitError("No.").lasting
