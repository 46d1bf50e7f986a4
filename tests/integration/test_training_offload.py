"""Clients whose states rest on disk give what they give in memory, bit by bit, whatever the method."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from fedquilt.devices import offload
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Factored, Sparse, each_tensor
from fedquilt.methods import fedpub
from fedquilt.methods.base import methods
from fedquilt.runs.folder import SeedFolder
from fedquilt.training.attendance import Conditions
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import (
    assert_same,
    assert_same_training,
    copied,
    make_method,
    make_task,
    make_training,
    ragged_clients,
)

SIZE, ROUNDS = 2, 3
# A method, its settings, and from how many clients on FED-PUB's averages are kept as factors.
PLAIN: list[tuple[str, dict[str, Any], int]] = [(name, {}, 1000) for name in methods()]
OTHERS: list[tuple[str, dict[str, Any], int]] = [
    ("fedpub", {"threshold": 0.5}, 1000),
    ("fedpub", {"similarity": "gradient"}, 1000),
    ("fedpub", {}, 2),
    ("fedpub", {"threshold": 0.5}, 2),
    ("quilt", {"share": "layer,head,filter", "identity": 4}, 1000),
]
VARIANTS = PLAIN + OTHERS
SHARES = [1.0, 0.6]


def in_shares(usual: float) -> list[Any]:
    """Variants with the share that takes part: plain methods with one (baselines: `make test-long`), the rest with both."""
    return [
        pytest.param(
            variant,
            share,
            id=f"{variant}-{share}",
            marks=[pytest.mark.long] if variant in PLAIN and (share != usual or methods()[variant[0]].baseline) else [],
        )
        for variant in VARIANTS
        for share in SHARES
    ]


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "THRESHOLD_BYTES", 0)


def begin(
    variant: tuple[str, dict[str, Any], int],
    share: float,
    rest: bool,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path | None = None,
    size: int = SIZE,
) -> Training:
    name, settings, many = variant
    monkeypatch.setattr(fedpub, "MANY", many)
    monkeypatch.setattr(offload, "THRESHOLD_BYTES", 0 if rest else 2**40)
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients), **settings)
    place = None if folder is None else SeedFolder(folder)
    return make_training(method, clients, Plan(ROUNDS, share, checkpoint_seconds=-1.0), size, store=place)


WHOLE: dict[str, Training] = {}


def in_memory(variant: tuple[str, dict[str, Any], int], share: float) -> Training:
    """The whole training with all states in memory, which several tests look at."""
    key = str((variant, share))
    if key not in WHOLE:
        with pytest.MonkeyPatch.context() as patch:
            WHOLE[key] = begin(variant, share, False, patch)
            WHOLE[key].run()
    return WHOLE[key]


def assert_identical(one: Training, two: Training) -> None:
    assert_same_training(one, two)
    assert_same(one.engine.personal(), two.engine.personal())
    assert_same(one.server, two.server)
    assert_same(one.findings, two.findings)
    for mine, other in zip(one.engine.predictions(), two.engine.predictions(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(("variant", "share"), in_shares(1.0))
def test_training_is_bit_identical(
    variant: tuple[str, dict[str, Any], int], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, resting = in_memory(variant, share), begin(variant, share, True, monkeypatch)
    state = resting.engine.state()
    names = [name for name in state if not name.startswith("figures.")]
    assert all(offload.is_offloaded(state[name]) for name in names)
    assert not any(offload.is_offloaded(tensor) for tensor in whole.engine.state().values())
    resting.run()
    assert all(resting.engine.state()[name] is state[name] for name in names)
    assert all(map(offload.is_offloaded, resting.progress.best.models.values())) or not names
    resting.engine.personal()  # those of the last round, beside the best ones
    assert_identical(resting, whole)


@pytest.mark.parametrize(
    "variant", [("fedavg", {}, 1000), ("fedpub", {}, 2), ("fedpub", {"threshold": 0.5}, 1000)], ids=str
)
def test_lost_uploads_change_nothing_of_that(
    variant: tuple[str, dict[str, Any], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(rest: bool) -> Training:
        name, settings, many = variant
        monkeypatch.setattr(fedpub, "MANY", many)
        monkeypatch.setattr(offload, "THRESHOLD_BYTES", 0 if rest else 2**40)
        clients = ragged_clients()
        method = make_method(name, clients, make_task(clients, epochs=2, seed=241), **settings)
        conditions = Conditions(drop_out=0.4, stragglers=0.4)  # with this seed nothing arrives in round 1
        training = make_training(method, clients, Plan(4, 0.3, conditions=conditions), 1)
        training.run()
        return training

    resting, whole = train(True), train(False)
    assert whole.records[1]["participants"] == []
    assert any(len(record["participants"]) > 0 and "lost" in record for record in whole.records)
    assert_identical(resting, whole)


@pytest.mark.parametrize(("variant", "share"), [p for p in in_shares(0.6) if p.values[0][0] != "majority"])
def test_a_resumed_training_is_bit_identical(
    variant: tuple[str, dict[str, Any], int],
    share: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed while states rest, gone on from while they do."""
    whole = in_memory(variant, share)
    first = begin(variant, share, True, monkeypatch, tmp_path)

    class Killed(Exception):  # noqa: N818
        pass

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 1:
            raise Killed

    first.on_round = stop
    with pytest.raises(Killed):
        first.run()
    resumed = begin(variant, share, True, monkeypatch, tmp_path)
    resumed.run()
    assert all(offload.is_offloaded(t) for n, t in resumed.engine.state().items() if not n.startswith("figures."))
    assert_identical(resumed, whole)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v[0] != "majority"], ids=str)
def test_looked_at_a_few_rows_at_a_time(
    variant: tuple[str, dict[str, Any], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then sums are added up in another order, and all else stays."""
    whole = in_memory(variant, 1.0)
    monkeypatch.setattr(offload, "CHUNK_ROWS", 2)
    resting = begin(variant, 1.0, True, monkeypatch)
    resting.run()
    for mine, other in zip(resting.records, whole.records, strict=True):
        assert mine.get("train_loss") == pytest.approx(other.get("train_loss"), abs=1e-4)
        assert ("train_loss" in mine) == whole.method.phase(mine["round"])[0].evaluated
        assert mine["bytes_down"] == other["bytes_down"] or "threshold" in variant[1]
    for name, model in resting.engine.personal().items():
        assert torch.allclose(model, whole.engine.personal()[name], atol=1e-4), name


# -- the engine ----------------------------------------------------------------------------------------


def engine_of(name: str, size: int | None = SIZE, **settings: Any) -> InProcess:
    clients = ragged_clients()
    return InProcess(make_method(name, clients, **settings), clients, cohort_size=size)


@pytest.mark.usefixtures("on_disk")
def test_one_cohort_does_not_rest() -> None:
    """All of it is in use all the time."""
    for size in (None, 5, 9):
        assert not any(map(offload.is_offloaded, engine_of("fedavg", size).state().values()))


@pytest.mark.parametrize("room", [0, 1])
def test_states_rest_from_the_limit_on(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    state = engine_of("fedavg", None).state()
    size = sum(t.numel() * t.element_size() for n, t in state.items() if not n.startswith("figures."))
    monkeypatch.setattr(offload, "THRESHOLD_BYTES", size - 1 + room)
    engine = engine_of("fedavg")
    for name, tensor in engine.state().items():
        assert offload.is_offloaded(tensor) == (room == 0 and not name.startswith("figures.")), name


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("share", SHARES)
def test_uploads_rest_and_are_sent_as_they_were(share: float) -> None:
    engine = engine_of("fedpub", threshold=0.5)
    down = engine.method.server_start()[1]
    chosen = torch.arange(5) if share == 1 else torch.tensor([0, 3, 4])
    uploads, _ = engine.round(0, chosen, down, evaluate=False)
    assert all(offload.is_offloaded(tensor) for value in uploads.values() for tensor in each_tensor(value))
    assert isinstance(uploads["model.conv1.weight"], Sparse)
    assert not isinstance(uploads["model.conv1.bias"], Sparse)
    assert all(len(each_tensor(value)[0]) == len(chosen) for value in uploads.values())
    kept = copied(uploads)
    personal = engine.personal()
    for name, weight in personal.items():
        assert offload.is_offloaded(weight)
        assert torch.equal(weight[chosen], kept["model." + name])
    # The next round's go to the same place.
    again, _ = engine.round(1, chosen, down, evaluate=False)
    for name, value in again.items():
        assert each_tensor(value)[0].data_ptr() == each_tensor(uploads[name])[0].data_ptr()
    assert not torch.equal(copied(again)["model.conv1.bias"], kept["model.conv1.bias"])


@pytest.mark.usefixtures("on_disk")
def test_more_senders_than_before_find_room() -> None:
    engine, other = engine_of("fedavg"), engine_of("fedavg", None)
    for round, chosen in enumerate((torch.tensor([1]), torch.tensor([0, 4]), torch.arange(5), torch.tensor([2, 3]))):
        uploads, _ = engine.round(round, chosen, {}, evaluate=True)
        expected, _ = other.round(round, chosen, {}, evaluate=True)
        assert list(uploads) == list(expected)
        for name, value in uploads.items():
            assert torch.allclose(value, expected[name], atol=1e-6)


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("name", methods())
def test_state_and_restore(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into other cohorts, and from disk into memory, a few rows at a time."""
    monkeypatch.setattr(offload, "CHUNK_ROWS", 2)
    engine = engine_of(name, 2)
    down = engine.method.server_start()[1]
    engine.evaluate()
    engine.round(0, torch.tensor([1, 3]), down, True)
    saved = copied(engine.state())
    for size in (3, 1, None):
        fresh = engine_of(name, size)
        fresh.personal()
        fresh.restore(saved)
        assert_same(copied(fresh.state()), saved)
        assert_same(fresh.personal(), engine.personal())
        for mine, other in zip(fresh.predictions(), engine.predictions(), strict=True):
            assert torch.allclose(mine, other, atol=1e-5)
    kept = copied(saved)
    fresh.round(1, torch.arange(5), down, False)
    assert_same(saved, kept)


@pytest.mark.usefixtures("on_disk")
def test_settling_and_diverging_are_told_as_in_memory() -> None:
    engine, other = engine_of("fedsheafhn"), engine_of("fedsheafhn", None)
    for each in (engine, other):
        each.round(0, torch.arange(5), {}, evaluate=False)
    assert torch.allclose(engine.settle({}).val_loss, other.settle({}).val_loss, atol=1e-5)
    broken = engine_of("fedavg", lr=1e30)
    with pytest.raises(FedquiltError, match=r"from the models of clients 0, 1, 2, 3, 4 any more"):
        broken.round(0, torch.arange(5), {}, evaluate=True)[1].check_finite()


@pytest.mark.usefixtures("on_disk")
def test_a_training_that_is_gone_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = len(offload._mappings)
    training = begin(("fedpub", {}, 2), 1.0, True, monkeypatch)
    training.run()
    assert isinstance(training.down["model.conv1.weight"], Factored)
    assert offload.is_offloaded(training.down["model.conv1.weight"].stack)
    assert len(offload._mappings) > before
    del training
    gc.collect()
    assert len(offload._mappings) == before
