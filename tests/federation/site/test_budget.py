"""What a site has spent of its privacy, over restarts and runs."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("dp_accounting", reason="pip install 'fedquilt[dp]'")

from fedquilt.common.lock import HeldError, locked
from fedquilt.errors import FedquiltError
from fedquilt.federation.site import budget as module
from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.ledger import Ledger, Payment
from fedquilt.messages.message import TensorSpec
from fedquilt.privacy.accountant import affordable_uploads, spent_epsilon
from fedquilt.privacy.dp import BudgetSpentError, DpConfig


def test_equal_uploads_spend_what_the_accountant_says(tmp_path: Path) -> None:
    config = DpConfig(clip=1.0, noise=3.0, delta=1e-5)
    assert Budget(tmp_path, config).spent() == 0.0
    for upload in range(1, 6):
        after = Budget(tmp_path, config).spend(3.0).epsilon  # each in a process of its own, as on Flower
        assert after == pytest.approx(spent_epsilon(3.0, upload, 1e-5), rel=1e-6)
    assert Budget(tmp_path, config).uploads == 5


def test_nothing_leaves_beyond_the_budget(tmp_path: Path) -> None:
    config = DpConfig(clip=1.0, noise=3.0, delta=1e-5, epsilon=10.0)
    most = affordable_uploads(3.0, 10.0, 1e-5, 1000)
    assert 1 < most < 1000
    for _ in range(most):
        Budget(tmp_path, config).spend(3.0)
    for _ in range(2):
        with pytest.raises(BudgetSpentError, match="over its budget of 10: nothing is sent any more"):
            Budget(tmp_path, config).spend(3.0)
    assert Budget(tmp_path, config).uploads == most
    assert Budget(tmp_path, config).spent() <= 10.0 * (1 + 1e-6)


@given(noises=st.lists(st.floats(0.5, 50.0), min_size=1, max_size=6))
def test_unlike_uploads_spend_between_the_best_and_the_worst_of_them(
    tmp_path_factory: pytest.TempPathFactory, noises: list[float]
) -> None:
    budget = Budget(tmp_path_factory.mktemp("budget"), DpConfig(clip=1.0, noise=1.0, delta=1e-5))
    spent = [budget.spend(noise).epsilon for noise in noises]
    assert all(one < two for one, two in pairwise(spent))
    low, high = (spent_epsilon(noise, len(noises), 1e-5) for noise in (max(noises), min(noises)))
    assert low * (1 - 1e-6) <= spent[-1] <= high * (1 + 1e-6)


@pytest.mark.parametrize("text", ["torn", "{}", '{"uploads": -1, "precision": 1}', '{"uploads": 1, "precision": NaN}'])
def test_a_damaged_note_stops_everything(tmp_path: Path, text: str) -> None:
    (tmp_path / "privacy.json").write_text(text)
    with pytest.raises(FedquiltError, match="is damaged: nothing is sent"):
        Budget(tmp_path, DpConfig(clip=1.0, noise=1.0)).spend(1.0)


def test_another_process_that_spends_is_waited_for(tmp_path: Path) -> None:
    """Held through another descriptor, which is to the operating system as another process is."""
    held, free = threading.Event(), []

    def hold() -> None:
        with locked(tmp_path / ".privacy.lock", tmp_path):
            held.set()
            time.sleep(0.3)
            free.append(True)

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    budget = Budget(tmp_path, DpConfig(clip=1.0, noise=3.0))
    budget.spend(3.0)
    assert free == [True]
    other.join()
    assert budget.uploads == 1


def test_one_that_does_not_end_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.1)
    budget = Budget(tmp_path, DpConfig(clip=1.0, noise=3.0))
    with locked(tmp_path / ".privacy.lock", tmp_path), pytest.raises(HeldError):
        budget.spend(3.0)
    assert budget.uploads == 0
    budget.spend(3.0)
    assert budget.uploads == 1


def ledger_line(state: Path, run: str, number: int | None, noise: float | None = 3.0) -> None:
    payment = None if number is None or noise is None else Payment(number, noise, 0.0)
    Ledger(state / run).write(0, {"w": torch.ones(1, 2), "v": torch.ones(1)}, (TensorSpec("*", "All."),), payment)


def test_a_deleted_file_gives_nothing_back(tmp_path: Path) -> None:
    """Three uploads left in two runs: without privacy.json, the ledgers say so, and the budget ends where it would have."""
    config = DpConfig(clip=1.0, noise=3.0, delta=1e-5, epsilon=10.0)
    budget = Budget(tmp_path, config)
    most = affordable_uploads(3.0, 10.0, 1e-5, 1000)
    for number in range(most):
        ledger_line(tmp_path, "aaaaaaaa" if number % 2 else "bbbbbbbb", budget.spend(3.0).number)
        (tmp_path / "privacy.json").unlink()
    assert Budget(tmp_path, config).uploads == most
    assert Budget(tmp_path, config).spent() == pytest.approx(spent_epsilon(3.0, most, 1e-5), rel=1e-6)
    with pytest.raises(BudgetSpentError):
        Budget(tmp_path, config).spend(3.0)


def test_an_older_copy_of_the_file_gives_nothing_back(tmp_path: Path) -> None:
    budget = Budget(tmp_path, DpConfig(clip=1.0, noise=3.0))
    copy = ""
    for _ in range(4):
        ledger_line(tmp_path, "aaaaaaaa", budget.spend(3.0).number)
        copy = copy or (tmp_path / "privacy.json").read_text()
    spent = budget.spent()
    (tmp_path / "privacy.json").write_text(copy)
    assert (budget.uploads, budget.spent()) == (4, pytest.approx(spent))
    assert budget.spend(3.0).number == 5


def test_ledgers_that_are_gone_give_nothing_back(tmp_path: Path) -> None:
    budget = Budget(tmp_path, DpConfig(clip=1.0, noise=3.0))
    for _ in range(3):
        ledger_line(tmp_path, "aaaaaaaa", budget.spend(3.0).number)
    spent = budget.spent()
    (tmp_path / "aaaaaaaa" / "ledger.jsonl").unlink()
    assert (budget.uploads, budget.spent()) == (3, spent)


def test_paid_uploads_that_never_left_do_not_hide_those_that_did(tmp_path: Path) -> None:
    """Numbers go on where the ledger's last one ended, so that no upload takes another one's place."""
    budget = Budget(tmp_path, DpConfig(clip=1.0, noise=3.0))
    budget.spend(3.0)  # the process was killed before it left
    ledger_line(tmp_path, "aaaaaaaa", budget.spend(3.0).number)
    (tmp_path / "privacy.json").unlink()
    ledger_line(tmp_path, "aaaaaaaa", budget.spend(3.0).number)
    (tmp_path / "privacy.json").unlink()
    assert budget.spent() == pytest.approx(spent_epsilon(3.0, 2, 1e-5), rel=1e-6)


def test_lines_without_noise_cost_nothing_and_those_that_do_not_say_stop_everything(tmp_path: Path) -> None:
    config = DpConfig(clip=1.0, noise=3.0)
    ledger_line(tmp_path, "aaaaaaaa", None)
    assert Budget(tmp_path, config).spent() == 0.0
    path = tmp_path / "aaaaaaaa" / "ledger.jsonl"
    path.write_text('{"round": 0, "name": "w", "bytes": 8}\n')  # of an earlier version
    with pytest.raises(FedquiltError, match="is missing, and the ledgers of 1 runs do not say how much noise"):
        Budget(tmp_path, config).spend(3.0)
    (tmp_path / "privacy.json").write_text('{"uploads": 0, "precision": 0}')
    assert Budget(tmp_path, config).spend(3.0).number == 1
    path.write_text('{"round": 0, "name": "w", "bytes": 8, "noise": -1, "paid": 1}\n')
    with pytest.raises(FedquiltError, match="has a noise that cannot be right; the ledger was altered"):
        Budget(tmp_path, config).spent()
