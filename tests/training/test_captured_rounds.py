"""Captured rounds give what eager rounds give. There is no accelerator here: stand-ins take the place of CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedquilt.devices.cuda_graph import CudaGraphCache
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, dense, each_tensor
from fedquilt.methods import base_adam, fedpub
from fedquilt.methods.base import methods
from fedquilt.runs.folder import SeedFolder
from fedquilt.training import captured_rounds, loop
from fedquilt.training.captured_rounds import CapturedRounds
from fedquilt.training.device_attendance import LEAST_SHARE
from fedquilt.training.engines.base import Evaluation
from fedquilt.training.loop import Training
from fedquilt.training.plan import BEST, SIMILARITY_ROUNDS, Plan
from fedquilt.training.round_result import RoundOutput
from support.federations import (
    assert_same,
    assert_same_training,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    without_seconds,
)

ROUNDS = 12


class Eager:
    """Captures nothing: every function is run."""

    failure: str | None = None

    def __init__(self) -> None:
        self.keys: list[Hashable] = []

    def __call__(self, key: Hashable, function: Callable[[], Any]) -> Any:
        self.keys.append(key)
        return function()


class Replaying(Eager):
    """What a CUDA graph does: from the second call on, a key is one function, with the round number of that call.

    It returns the tensors of the capture, and everything it reads and writes must be where it was then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.training: Training | None = None
        self.replayed = 0
        self.graphs: dict[Hashable, tuple[Callable[[], Any], list[int], Any]] = {}

    def __call__(self, key: Hashable, function: Callable[[], Any]) -> Any:
        seen = key in self.keys
        self.keys.append(key)
        if not seen:
            return function()
        here = places(self.training)
        if key not in self.graphs:
            with capturing():
                given = function()
            self.graphs[key] = function, here, given
            return given
        function, there, given = self.graphs[key]
        assert here == there
        self.replayed += 1
        with capturing():
            now = function()
        if not isinstance(given, RoundOutput):
            overwrite(given, now)
        return given


@contextmanager
def capturing() -> Iterator[None]:
    before, base_adam.is_capturing = base_adam.is_capturing, lambda tensor: True
    try:
        yield
    finally:
        base_adam.is_capturing = before


def overwrite(old: tuple[dict, Evaluation], new: tuple[dict, Evaluation]) -> None:
    for name, value in old[0].items():
        for mine, now in zip(each_tensor(value), each_tensor(new[0][name]), strict=True):
            mine.copy_(now)
    if old[1] is not None:
        for name in Evaluation.__dataclass_fields__:
            getattr(old[1], name).copy_(getattr(new[1], name))


def places(one: Training) -> list[int]:
    """Where in memory everything is that outlasts a round."""
    down = [tensor for value in one.down.values() for tensor in each_tensor(value)]
    kept = [*one.server.values(), *one.engine.state().values(), *one.progress.best.models.values()]
    return [tensor.data_ptr() for tensor in (*down, *kept)]


def in_blocks(one: Training, graphs: type[Eager] = Replaying) -> Training:
    """The same training as on an accelerator."""
    stand_in = graphs()
    if isinstance(stand_in, Replaying):
        stand_in.training = one
    if one.method.host_server:
        one.runner.capture_clients(stand_in)
    else:
        one.captured_rounds = CapturedRounds(one.runner, one.progress, stand_in)
    return one


def graphs_of(one: Training) -> Any:
    return one.runner.client_graphs if one.captured_rounds is None else one.captured_rounds.graphs


def begin(name: str, plan: Plan, folder: Path | None = None, **settings: Any) -> Training:
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, epochs=2 if name == "fedavg" else 1), **settings)
    return make_training(method, clients, plan, store=None if folder is None else SeedFolder(folder))


def assert_identical(one: Training, two: Training) -> None:
    assert_same_training(one, two)
    assert_same(one.engine.personal(), two.engine.personal())
    assert_same(one.server, two.server)
    assert_same({n: dense(v) for n, v in one.down.items()}, {n: dense(v) for n, v in two.down.items()})
    assert_same(one.findings, two.findings)


METHODS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name, method in methods().items() if not method.single_round),
    ("fedpub", {"threshold": 0.5}),
    ("fedpub", {"threshold": 0.5, "similarity": "gradient"}),
    ("fedpub", {"matching": False}),
    ("fedsheafhn", {"refresh": 2, "fresh_moments": False}),
    ("fedsheafhn", {"refresh": 0}),
    ("quilt", {"share": ""}),
]


@pytest.mark.parametrize(
    ("name", "settings", "every"),
    [(*m, 1) for m in METHODS] + [(*m, 3) for m in METHODS[:: len(METHODS) // 3]],
    ids=str,
)
def test_every_method_gives_what_it_gives_one_by_one(name: str, settings: dict[str, Any], every: int) -> None:
    plan = Plan(11, evaluate_every=every)
    whole, block = begin(name, plan, **settings), in_blocks(begin(name, plan, **settings))
    whole.run()
    block.run()
    assert graphs_of(block).replayed >= 3
    assert_identical(block, whole)


@pytest.mark.parametrize("graphs", [Eager, Replaying])
@pytest.mark.parametrize(("most", "patience"), [(1, None), (2, 4), (5, None), (32, None), (32, 2), (32, 1)])
def test_blocks_of_any_length(
    most: int, patience: int | None, graphs: type[Eager], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured_rounds, "BLOCK_ROUNDS", most)
    plan = Plan(24, patience=patience)
    whole, block = begin("fedpub", plan, dropout=0.8), in_blocks(begin("fedpub", plan, dropout=0.8), graphs)
    lengths: list[int] = []
    assert block.captured_rounds is not None
    train = block.captured_rounds.train

    def counted(first: int, stop: int) -> list:
        seen = train(first, stop)
        lengths.append(len(seen))
        return seen

    block.captured_rounds.train = counted  # type: ignore[method-assign]
    whole.run()
    block.run()
    assert max(lengths) <= most
    assert min(most, patience or most) == 1 or max(lengths) > 1
    assert sum(lengths) == len(block.records)
    assert_identical(block, whole)


def test_bytes_that_depend_on_the_numbers_are_each_rounds_own() -> None:
    plan = Plan(ROUNDS)
    settings = {"threshold": 0.5, "l1": 5.0}
    whole, block = begin("fedpub", plan, **settings), in_blocks(begin("fedpub", plan, **settings))
    whole.run()
    block.run()
    sent = [record["bytes_up"]["model.conv1.weight"] for record in block.records]
    assert len(set(sent)) > 3
    for mine, other in zip(block.records, whole.records, strict=True):
        assert mine["bytes_up"] == other["bytes_up"]
        assert mine["bytes_down"] == other["bytes_down"]
        assert all(type(count) is int for count in (*mine["bytes_up"].values(), *mine["bytes_down"].values()))
    assert block.progress.upload_bytes == whole.progress.upload_bytes


def test_a_block_ends_where_similarities_are_stored() -> None:
    whole, block = begin("fedpub", Plan(53), dropout=0.8), in_blocks(begin("fedpub", Plan(53), dropout=0.8))
    seen: list[Tensor] = []
    whole.on_round = lambda record: seen.append(whole.server["similarity"].clone())
    whole.run()
    assert block.captured_rounds is not None
    ends: list[int] = []
    train = block.captured_rounds.train
    block.captured_rounds.train = lambda first, stop: (ends.append(stop), train(first, stop))[1]  # type: ignore[method-assign]
    block.run()
    assert set(block.similarities) == {r for r in SIMILARITY_ROUNDS if r < 53} | {BEST}
    assert {r + 1 for r in SIMILARITY_ROUNDS if r < 53} <= set(ends)
    for round, similarity in block.similarities.items():
        assert torch.equal(similarity, seen[block.progress.best.round if round == BEST else round])


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
def test_only_the_first_round_has_a_key_of_its_own(rounds: int) -> None:
    """It downloads nothing; the last one is aggregated like all others."""
    whole, block = begin("fedavg", Plan(rounds)), in_blocks(begin("fedavg", Plan(rounds)))
    whole.run()
    block.run()
    keys = graphs_of(block).keys
    assert keys.count(keys[0]) == 1
    assert len(set(keys)) == min(rounds, 2)
    assert_identical(block, whole)


def test_diagnostics_are_those_of_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def diagnostics(self: Any, server: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"mean": server["similarity"].mean(), "least": server["similarity"].min()}

    monkeypatch.setattr(fedpub.FedPub, "diagnostics", diagnostics)
    whole, block = begin("fedpub", Plan(9)), in_blocks(begin("fedpub", Plan(9)))
    whole.run()
    block.run()
    seen = [record["diagnostics"] for record in whole.records]
    assert [record["diagnostics"] for record in block.records] == seen
    assert len({entry["mean"] for entry in seen}) == 9
    assert all(entry["least"] <= entry["mean"] for entry in seen)


def test_advancing_stops_where_it_is_told_to() -> None:
    whole, block = begin("fedavg", Plan(40)), in_blocks(begin("fedavg", Plan(40)))
    for rounds in (3, 1, 12):
        for each in (whole, block):
            each.advance(rounds)
        assert_identical(block, whole)
    assert len(block.records) == 16


def test_what_the_server_keeps_stays_where_it_is() -> None:
    """Whether a method writes into it or puts something new in its place."""
    block = in_blocks(begin("fedpub", Plan(8)))
    kept = dict(block.server)
    aggregate = block.method.aggregate

    def replacing(server: dict, *rest: Any) -> dict:
        out = aggregate(server, *rest)
        server["similarity"] = server["similarity"].clone()
        return out

    block.runner.aggregate = replacing
    block.run()
    assert all(block.server[name] is tensor for name, tensor in kept.items())
    whole = begin("fedpub", Plan(8))
    whole.run()
    assert_identical(block, whole)


def test_a_round_that_fails_leaves_the_server_in_its_place() -> None:
    """As a round does that cannot be captured: then it is run again."""
    block = in_blocks(begin("fedpub", Plan(8)))
    block.advance(2)
    kept, before = dict(block.server), {name: tensor.clone() for name, tensor in block.server.items()}
    assert block.captured_rounds is not None

    def broken(server: dict, *rest: Any) -> dict:
        server["similarity"] = server["similarity"].clone()
        raise RuntimeError("a look at the numbers")

    block.runner.aggregate = broken
    with pytest.raises(RuntimeError, match="a look"):
        block.captured_rounds._round(2)
    assert all(block.server[name] is tensor for name, tensor in kept.items())
    assert_same(block.server, before)


def test_diverging_is_told_as_it_is_one_by_one() -> None:
    for each in (begin("fedavg", Plan(9), lr=1e30), in_blocks(begin("fedavg", Plan(9), lr=1e30))):
        with pytest.raises(FedquiltError, match="Training diverged: no finite numbers come from the models of clients"):
            each.run()
        assert each.records == []


# -- scripted metrics ---------------------------------------------------------------------------------


class Scripted:
    """An engine that trains nothing and reports what it is told, round by round."""

    device, supports_cuda_graphs, senders, clients_are_private = torch.device("cpu"), False, None, False
    timings: ClassVar[dict[str, float]] = {}
    reported: ClassVar[dict[str, float]] = {}

    def __init__(self, val: list[float], broken: int | None = None) -> None:
        self.val, self.broken, self.now, self.forgotten = val, broken, -1, 0

    def round(self, round: int, participants: Tensor, down: dict, evaluate: bool) -> tuple[dict, Evaluation | None]:
        self.now = round
        if not evaluate:
            return {}, None
        each = torch.tensor([self.val[round], self.val[round] + 0.25])
        sound = torch.tensor([1.0, float(round != self.broken)])
        return {}, Evaluation(each + 1, each + 2, each, torch.full((2,), round / 128), sound)

    def personal(self) -> dict[str, Tensor]:
        return {"round": torch.full((2, 1), float(self.now))}

    def forget(self) -> None:
        self.forgotten += 1

    def state(self) -> dict[str, Tensor]:
        return {}


def scripted(val: list[float], plan: Plan, block: bool, broken: int | None = None) -> Training:
    method = make_method("local", ragged_clients((9, 9)))
    one = Training(method, Scripted(val, broken), plan)
    return in_blocks(one, Eager) if block else one


def told(one: Training) -> tuple:
    best = one.progress.best
    models = {name: tensor.tolist() for name, tensor in best.models.items()}
    return without_seconds(one.records), best.round, best.val, best.test, best.clients_test, models


VALS = st.lists(st.sampled_from([0.125, 0.25, 0.375, 0.5, 0.625]), min_size=1, max_size=70)


@settings(max_examples=30)
@example(val=[0.5] + [0.25] * 69, patience=40)
@example(val=[0.5] + [0.25] * 69, patience=3)
@given(val=VALS, patience=st.none() | st.integers(1, 9))
def test_patience_is_never_overrun(val: list[float], patience: int | None) -> None:
    plan = Plan(len(val), patience=patience)
    whole, block = (scripted(val, plan, block) for block in (False, True))
    whole.run()
    block.run()
    assert told(block) == told(whole)


@settings(max_examples=30)
@given(val=VALS, every=st.integers(2, 12))
def test_rounds_without_figures(val: list[float], every: int) -> None:
    plan = Plan(len(val), evaluate_every=every)
    whole, block = (scripted(val, plan, block) for block in (False, True))
    whole.run()
    block.run()
    assert told(block) == told(whole)
    assert block.engine.forgotten > 0


@pytest.mark.parametrize(("every", "patience"), [(7, 1), (12, 3), (25, 10)])
def test_patience_is_not_overrun_by_the_block_of_the_first_figures(every: int, patience: int) -> None:
    plan = Plan(70, patience=patience, evaluate_every=every)
    val = [0.125] * every + [0.5] * (70 - every)
    whole, block = (scripted(val, plan, block) for block in (False, True))
    whole.run()
    block.run()
    assert told(block) == told(whole)


@pytest.mark.parametrize("broken", [0, 2, 12, 25])
def test_a_model_that_gives_no_numbers_ends_a_block_at_its_round(broken: int) -> None:
    val = [0.25 + r / 128 for r in range(30)]
    for block in (False, True):
        one = scripted(val, Plan(30), block, broken)
        with pytest.raises(FedquiltError, match="from the model of client 1 any more"):
            one.run()
        assert [record["round"] for record in one.records] == list(range(broken))
        assert one.progress.best.round == broken - 1


def test_without_any_validation_node_nothing_can_be_chosen() -> None:
    for block in (False, True):
        with pytest.raises(FedquiltError, match="No client has a validation node"):
            scripted([math.nan] * 3, Plan(3), block).run()


def test_of_equal_rounds_the_first_is_kept() -> None:
    val = [0.25, 0.25, 0.25, 0.5, 0.375, 0.5, 0.5, 0.25]
    one = scripted(val, Plan(8), True)
    one.run()
    assert one.progress.best.round == 3
    assert one.progress.best.models["round"].tolist() == [[3.0], [3.0]]
    assert one.progress.best.test == 100 * 3 / 128


def test_a_block_goes_on_from_the_best_before_it() -> None:
    """The best of all is in the first block; later ones have better rounds than their own first."""
    val = [0.625, 0.125, 0.25, 0.375, 0.5] * 8
    one = scripted(val, Plan(40), True)
    one.run()
    assert one.progress.best.round == 0
    assert one.progress.best.models["round"].tolist() == [[0.0], [0.0]]


# -- going on after a kill -------------------------------------------------------------------------------


def resumed_after(last: int, folder: Path) -> tuple[Training, Training]:
    """A training that was killed in the middle of a block and gone on from, and one that was not."""

    class Killed(Exception):  # noqa: N818
        pass

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == last:
            raise Killed

    plan = Plan(24, checkpoint_seconds=-1.0)
    first = in_blocks(begin("fedpub", plan, folder))
    first.on_round = stop
    with pytest.raises(Killed):
        first.run()
    resumed, whole = in_blocks(begin("fedpub", plan, folder)), begin("fedpub", plan)
    resumed.run()
    whole.run()
    return resumed, whole


@pytest.mark.parametrize("last", [0, 4])
def test_a_training_killed_between_blocks_is_gone_on_from(last: int, tmp_path: Path) -> None:
    assert_identical(*resumed_after(last, tmp_path))


@pytest.mark.parametrize("last", [2, 7])
def test_a_training_killed_within_a_block_is_gone_on_from(last: int, tmp_path: Path) -> None:
    assert_identical(*resumed_after(last, tmp_path))


# -- averages in factors ---------------------------------------------------------------------------------


def test_factors_may_have_another_rank_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """What clients have in common changes as they train, and how many columns it takes."""
    monkeypatch.setattr(fedpub, "MANY", 2)
    monkeypatch.setattr("fedquilt.nn.kernel_average.TOLERANCE", 0.02)
    whole, block = (begin("fedpub", Plan(ROUNDS), contrast="none") for _ in range(2))
    block = in_blocks(block, Eager)
    ranks = set()
    whole.on_round = lambda record: ranks.add(len(each_tensor(whole.down["model.conv1.weight"])[1]))
    whole.run()
    assert len(ranks) > 1
    block.run()
    assert_identical(block, whole)


# -- CUDA graphs -----------------------------------------------------------------------------------------


def test_a_training_that_cannot_be_captured_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: object, pool: object, capture_error_mode: str) -> None:
        raise RuntimeError("no accelerator")

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", refuse)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    block, whole = begin("fedavg", Plan(9)), begin("fedavg", Plan(9))
    block.captured_rounds = CapturedRounds(block.runner, block.progress)
    assert isinstance(block.captured_rounds.graphs, CudaGraphCache)
    assert (whole.captured, block.captured) == (None, "rounds")
    block.run()
    whole.run()
    assert block.captured == "nothing: no accelerator"
    assert_identical(block, whole)


def test_which_trainings_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an accelerator, with all clients computing; only the clients' part where the server reads values."""
    monkeypatch.setattr(captured_rounds, "CudaGraphCache", {RoundOutput: Eager})
    monkeypatch.setattr(loop, "CudaGraphCache", {tuple[Message, Evaluation | None]: Eager})
    clients = ragged_clients()
    for name, method in methods().items():
        for share, able in ((1.0, True), (0.6, True), (LEAST_SHARE / 2, True), (1.0, False)):
            one = make_training(make_method(name, clients), clients, Plan(3))
            one.engine.supports_cuda_graphs = able
            again = Training(one.method, one.engine, Plan(3, share))
            steady = able and share >= LEAST_SHARE and not method.single_round
            assert (again.runner.seats is not None) == (steady and share < 1), name
            assert (again.captured_rounds is not None) == (steady and not method.host_server), name
            assert (again.runner.client_graphs is not None) == (steady and method.host_server), name
            assert again.captured == (None if not steady else "clients" if method.host_server else "rounds")


class NothingFromTheHost(TorchDispatchMode):
    """Fails where a number of the host becomes a tensor, as in `tensor[index] = number`: no capture can copy it to a device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket is not torch.ops.aten.lift_fresh, "a number of the host becomes a tensor"
        return func(*args, **(kwargs or {}))


def aggregated_on_a_device(one: Training) -> None:
    """Two rounds as they are; then one in which the server may not make a tensor without saying where, nor from the host."""
    one.advance(2)
    usual = one.runner.aggregate

    def aggregate(*arguments: Any) -> Message:
        with torch.device("meta"), NothingFromTheHost():  # a tensor without a place has no values, and fails
            return usual(*arguments)

    one.runner.aggregate = aggregate
    one.advance(1)


@pytest.mark.parametrize("name", [n for n, m in methods().items() if not (m.host_server or m.single_round)])
def test_a_server_that_is_captured_takes_nothing_from_the_host(name: str) -> None:
    aggregated_on_a_device(begin(name, Plan(8)))


@pytest.mark.parametrize("fault", [lambda h: h.__setitem__(torch.tensor([0]), 1.0), lambda h: h + torch.ones(len(h))])
def test_a_server_that_takes_something_from_the_host_is_found(fault: Callable[[Tensor], Any]) -> None:
    one = begin("fedavg", Plan(8))
    usual, index = one.runner.aggregate, torch.zeros(5)
    one.runner.aggregate = lambda *arguments: (fault(index), usual(*arguments))[1]
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
        aggregated_on_a_device(one)
