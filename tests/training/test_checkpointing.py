"""Checkpoints: a training that is killed at any moment and resumed gives the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedquilt.graphs.split import NONE, TEST
from fedquilt.methods.base import methods
from fedquilt.runs.folder import SeedFolder
from fedquilt.training.loop import Training
from fedquilt.training.plan import BEST, Plan
from support.federations import (
    assert_same_training,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    without_seconds,
)

ROUNDS = 6


class Killed(Exception):  # noqa: N818
    pass


# Damage and the moment of a kill are met by all methods alike: these few see each of them.
FEW: list[tuple[str, dict[str, Any], float]] = [
    ("fedavg", {}, 1.0),
    ("fedavg", {}, 0.6),
    ("fedpub", {"threshold": 0.5}, 0.6),
    ("fedpub", {"similarity": "gradient"}, 0.6),
]
# What a method keeps is its own: every one goes on from each of its rounds.
ALL = FEW + [
    (name, {}, 0.6) for name, kind in methods().items() if not kind.single_round and (name, {}, 0.6) not in FEW
]


def begin(variant: tuple[str, dict[str, Any], float], folder: Path | None, cohort_size: int | None = None) -> Training:
    name, settings, share = variant
    clients = ragged_clients()
    clients[2].split[clients[2].split == TEST] = NONE  # an undefined figure has to survive as well
    place = None if folder is None else SeedFolder(folder)
    method = make_method(name, clients, make_task(clients, epochs=2), **settings)
    return make_training(method, clients, Plan(ROUNDS, share, checkpoint_seconds=-1.0), cohort_size, store=place)


def kill_after(training: Training, round: int) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["round"] == round:
            raise Killed

    training.on_round = stop
    with pytest.raises(Killed):
        training.run()


def trained(variant: tuple[str, dict[str, Any], float]) -> Training:
    training = begin(variant, None)
    training.run()
    return training


@pytest.fixture(scope="module", params=FEW, ids=str)
def whole(request: pytest.FixtureRequest) -> tuple[tuple, Training]:
    training = trained(request.param)
    if request.param[0] == "fedpub":
        assert {0, 4, BEST} <= set(training.similarities)
    return request.param, training


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_resumed_training_is_bit_identical(whole: tuple[tuple, Training], round: int, tmp_path: Path) -> None:
    variant, expected = whole
    kill_after(begin(variant, tmp_path), round)
    resumed = begin(variant, tmp_path)
    seen: list[int] = []
    resumed.on_round = lambda record: seen.append(record["round"])
    resumed.run()
    assert seen == list(range(expected.plan.rounds))  # progress is told of the rounds before as well
    assert_same_training(resumed, expected)
    assert without_seconds(SeedFolder(tmp_path).records()) == without_seconds(expected.records)


@pytest.mark.parametrize("variant", ALL, ids=str)
def test_killed_again_and_again(variant: tuple[str, dict[str, Any], float], tmp_path: Path) -> None:
    """After each of its rounds, of whatever phase."""
    expected = trained(variant)
    for round in range(expected.plan.rounds - 1):
        training = begin(variant, tmp_path)
        whole_round = training.runner.run

        def stop(number: int, last: int = round, run: Any = whole_round) -> Any:
            if number > last:
                raise Killed
            return run(number)

        training.runner.run = stop  # type: ignore[method-assign]
        with pytest.raises(Killed):
            training.run()
    resumed = begin(variant, tmp_path)
    resumed.run()
    assert_same_training(resumed, expected)
    assert without_seconds(SeedFolder(tmp_path).records()) == without_seconds(expected.records)


@pytest.mark.parametrize("damage", ["tensors", "facts", "truncated", "missing"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    whole: tuple[tuple, Training], damage: str, tmp_path: Path
) -> None:
    variant, expected = whole
    kill_after(begin(variant, tmp_path), 3)
    newest = tmp_path / "checkpoints" / "round-000003"
    tensors, facts = newest.with_suffix(".safetensors"), newest.with_suffix(".json")
    if damage == "tensors":
        data = bytearray(tensors.read_bytes())
        data[-1] ^= 1
        tensors.write_bytes(data)
    elif damage == "truncated":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    elif damage == "facts":
        facts.write_text(facts.read_text().replace('"round": 3', '"round": 4'))
    else:
        tensors.unlink()
    saved = SeedFolder(tmp_path).latest_checkpoint()
    assert saved is not None
    assert saved.round == 2
    resumed = begin(variant, tmp_path)
    resumed.run()
    assert_same_training(resumed, expected)


def test_all_checkpoints_damaged_starts_anew(whole: tuple[tuple, Training], tmp_path: Path) -> None:
    variant, expected = whole
    kill_after(begin(variant, tmp_path), 3)
    for path in (tmp_path / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"")
    resumed = begin(variant, tmp_path)
    resumed.run()
    assert_same_training(resumed, expected)
    assert without_seconds(SeedFolder(tmp_path).records()) == without_seconds(expected.records)


def test_rounds_after_the_checkpoint_are_forgotten_and_done_again(tmp_path: Path) -> None:
    variant = FEW[2]
    expected = trained(variant)
    training = begin(variant, tmp_path)
    assert training.checkpointer is not None
    training.checkpointer._wait = 1e9
    training.on_round = lambda record: training.save() if record["round"] == 1 else None
    training.run()
    assert len(SeedFolder(tmp_path).records()) == ROUNDS
    resumed = begin(variant, tmp_path)
    resumed.run()
    assert_same_training(resumed, expected)


def test_without_a_folder_save_does_nothing() -> None:
    training = begin(FEW[0], None)
    training.save()
    training.run()
    assert len(training.records) == ROUNDS
