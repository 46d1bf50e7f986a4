"""`--log` of run, compare and resume."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli import SMALL, interrupt_at, outcome

pytest.importorskip("tensorboard", reason="needs pip install 'fedquilt[tensorboard]'")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def rounds(folder: Path, seed: int = 0) -> list[int]:
    """The rounds in a run's log."""
    events = EventAccumulator(str(folder / "logs" / "tensorboard" / f"seed-{seed}")).Reload()
    return [event.step for event in events.Scalars("seconds")]


def test_run_logs_to_its_folder_and_says_no_more_than_without(call: Callable, here: Path) -> None:
    called = call(f"run -m fedavg {SMALL} --seeds 0,4 --out out --log tensorboard --quiet")
    assert called.status == 0, called.err
    assert called.err == ""
    assert [rounds(here / "out", seed) for seed in (0, 4)] == [[0, 1, 2]] * 2
    assert call(f"run -m fedavg {SMALL} --seeds 0,4 --out plain --quiet").status == 0
    assert outcome(here / "out") == outcome(here / "plain")
    assert (here / "out" / "config.json").read_text() == (here / "plain" / "config.json").read_text()
    assert not (here / "plain" / "logs").exists()


def test_a_comparison_that_was_stopped_goes_on_logging(
    call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, "fedavg")
        called = call(f"compare -m local,fedavg {SMALL} --out out --log tensorboard -q")
    assert called.status == 130
    assert rounds(here / "out" / "local") == [0, 1, 2]
    assert rounds(here / "out" / "fedavg") == [0, 1]
    assert call("resume out --log tensorboard -q").status == 0
    assert rounds(here / "out" / "fedavg") == [0, 1, 2]


def test_a_finished_run_is_logged_afterwards(call: Callable, here: Path) -> None:
    assert call(f"run -m fedavg {SMALL} --out out -q").status == 0
    assert call("resume out --log tensorboard --json -q").err == ""
    assert rounds(here / "out") == [0, 1, 2]


@pytest.mark.parametrize("command", ["run -m fedavg", "compare -m fedavg,local"])
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(
    refused: Callable, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(f"{command} --rounds 2 --log tensorboard,wand")
    assert said == "There is no logger 'wand'; did you mean 'wandb'?"
    monkeypatch.setitem(sys.modules, "mlflow", None)
    said = refused(f"{command} --rounds 2 --log tensorboard --log mlflow")
    assert said == "Logging to MLflow needs its package; install it with: pip install 'fedquilt[mlflow]'."
