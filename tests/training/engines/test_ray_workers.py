"""Workers on Ray: the same numbers as in process, whoever is lost on the way."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, Sparse
from fedquilt.methods.base import Method, State, Update, federated_methods
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs.folder import RunFolder
from fedquilt.training.attendance import Conditions
from fedquilt.training.engines.base import Evaluation
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import (
    assert_same,
    copied,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    without_seconds,
)

ray = pytest.importorskip("ray")
from fedquilt.training.engines import ray_workers  # noqa: E402
from fedquilt.training.engines.ray_cluster import cluster, gpu_each, threads_each  # noqa: E402
from fedquilt.training.engines.ray_worker import RayWorker  # noqa: E402
from fedquilt.training.engines.ray_workers import RayWorkers, near_equal  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    """A small Ray of this module's own; its folder is short, for a socket's path may have 107 characters."""
    with (
        tempfile.TemporaryDirectory(prefix="fq", dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers find the methods of this file
        ray.init(
            address="local",
            num_cpus=2,
            object_store_memory=100 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=folder,
        )
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def running(local_ray: None) -> list[Any]:
    """Two workers that run already."""
    return [ray.remote(RayWorker).options(num_cpus=0).remote() for _ in range(2)]


@pytest.fixture
def pooled(running: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of two workers take those that run already: starting a process takes seconds, taking clients in does not."""
    monkeypatch.setattr(RayWorkers, "_actor", pool(running))


def pool(running: list[Any]) -> Callable[[RayWorkers], Any]:
    """What gives an engine of two workers those that run already."""
    workers = cycle(running)
    return lambda engine: next(workers)


def on_workers(method: Method, plan: Plan, workers: int = 2, **options: Any) -> Training:
    engine = RayWorkers(method, ragged_clients(), workers, cohort_size=options.pop("cohort_size", None))
    return Training(method, engine, plan, **options)


def in_process(method: Method, plan: Plan, **options: Any) -> Training:
    return make_training(method, ragged_clients(), plan, **options)


def assert_close(one: State, two: State) -> None:
    assert sorted(one) == sorted(two)
    for name in one:
        assert torch.allclose(one[name].double(), two[name].double(), rtol=1e-5, atol=1e-5, equal_nan=True), name


def figures(records: list[dict]) -> list[Any]:
    """All numbers of some records, and the rest of them."""
    numbers = ("val", "test", "train_loss", "val_loss", "clients", "diagnostics")
    flat = [
        [*(r[n] for n in numbers[:4]), *r["clients"]["val"], *r["clients"]["test"], *r.get("diagnostics", {}).values()]
        for r in records
        if "val" in r  # in phases that are evaluated
    ]
    rest = [{k: v for k, v in r.items() if k not in numbers} for r in without_seconds(records)]
    return [np.array(flat, dtype=float), rest]


def assert_same_training(one: Training, two: Training) -> None:
    """Bit by bit: all records, the best models and all that clients keep."""
    assert without_seconds(one.records) == without_seconds(two.records)
    assert_same(one.progress.best.models, two.progress.best.models)
    assert_same(one.engine.state(), two.engine.state())


def assert_close_training(one: Training, two: Training) -> None:
    (mine, rest), (other, others) = figures(one.records), figures(two.records)
    assert np.allclose(mine, other, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert rest == others
    assert_close(one.engine.state(), two.engine.state())
    assert_close(one.progress.best.models, two.progress.best.models)
    assert_close(one.findings, two.findings)


# -- the same numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", federated_methods())
def test_every_method_trains_as_in_process(pooled: None, name: str) -> None:
    plan = Plan(3, participation=0.6 if name in ("fedpub", "quilt") else 1.0)
    trainings = [make(make_method(name, ragged_clients()), plan) for make in (on_workers, in_process)]
    for training in trainings:
        training.run()
    assert_close_training(*trainings)
    mine, other = (training.engine for training in trainings)
    assert_close(mine.personal(), other.personal())
    for one, two in zip(mine.predictions(), other.predictions(), strict=True):
        assert torch.allclose(one, two, atol=1e-5)


def test_figures_of_those_who_sit_out_are_the_last_ones(pooled: None) -> None:
    """Also where they trained in a round that was not evaluated, and before anyone was."""
    clients = ragged_clients()
    engines = [
        RayWorkers(make_method("fedavg", clients), clients, 2),
        InProcess(make_method("fedavg", clients), clients),
    ]
    for round, here, evaluate in ((0, [0], True), (1, [3, 4], False), (2, [1], True), (3, [0, 4], True)):
        one, two = (each.round(round, torch.tensor(here), {}, evaluate) for each in engines)
        assert_close(copied(one[0]), copied(two[0]))
        assert (one[1] is None) == (not evaluate)
        if evaluate:
            for name in Evaluation.__dataclass_fields__:
                expected = getattr(two[1], name)
                assert torch.allclose(getattr(one[1], name), expected, atol=1e-5, equal_nan=True), (round, name)


def test_sparse_downloads_and_small_cohorts(pooled: None) -> None:
    plan = Plan(3, participation=0.8)
    method = make_method("fedpub", ragged_clients(), threshold=0.3)
    workers, alone = on_workers(method, plan, cohort_size=1), in_process(method, plan)
    workers.run()
    alone.run()
    assert_close_training(workers, alone)
    assert any(isinstance(value, Sparse) for value in workers.down.values())


def test_stragglers_and_lost_uploads_are_as_in_process(pooled: None) -> None:
    clients = ragged_clients()
    method = make_method("scaffold", clients, make_task(clients, epochs=3))
    plan = Plan(3, participation=0.8, conditions=Conditions(drop_out=0.3, stragglers=0.6))
    workers, alone = on_workers(method, plan), in_process(method, plan)
    workers.run()
    alone.run()
    assert any("stragglers" in record for record in alone.records)
    assert any("lost" in record for record in alone.records)
    assert_close_training(workers, alone)


def test_shared_tensors_are_stored_once(pooled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = ragged_clients()
    method = make_method("fedavg", clients)
    engine, alone = RayWorkers(method, clients, 2), InProcess(method, clients)
    uploads, _ = alone.round(0, torch.arange(5), {}, False)
    down = method.aggregate({}, uploads, torch.arange(5), torch.arange(5))
    stored: list[int] = []
    put = ray.put
    monkeypatch.setattr(
        ray, "put", lambda packed: stored.append(sum(a.nbytes for a, _ in packed.values())) or put(packed)
    )
    engine.round(1, torch.arange(5), down, False)
    assert sum(stored) == sum(t.numel() * 4 for t in down.values())


def test_settle(pooled: None) -> None:
    clients = ragged_clients()
    engines = [
        RayWorkers(make_method("fedavg", clients), clients, 2),
        InProcess(make_method("fedavg", clients), clients),
    ]
    reports = []
    for engine in engines:
        engine.round(0, torch.arange(5), {}, evaluate=False)
        reports.append(engine.settle({}))
    assert torch.allclose(reports[0].val_loss, reports[1].val_loss, atol=1e-5)
    engines[0].forget()
    assert_close(*(engine.personal() for engine in engines))


# -- going on --------------------------------------------------------------------------------------------------------


def test_resume_on_workers_equals_in_process(pooled: None, tmp_path: Path) -> None:
    """Begun in process or on workers, gone on with on workers."""
    plan, short = Plan(6, participation=0.6, checkpoint_seconds=0), Plan(3, participation=0.6, checkpoint_seconds=0)
    method = make_method("quilt", ragged_clients())
    whole = in_process(method, plan)
    whole.run()
    for number, begin in enumerate((in_process, on_workers)):
        folder = RunFolder.create(tmp_path / str(number), "run").seed(0)
        begun = begin(make_method("quilt", ragged_clients()), plan, store=folder)
        begun.engine.evaluate()
        begun.advance(short.rounds)
        begun.save()
        resumed = on_workers(make_method("quilt", ragged_clients()), plan, store=folder)
        resumed.run()
        assert_close_training(resumed, whole)


# -- losing workers --------------------------------------------------------------------------------------------------


class Fatal(FedAvg):
    """Its process is killed while client 4 trains in round 3: the first time, or, where the file says so, every time."""

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        note = Path(self.context.partition)
        update = super().local_update(state, cohort, down, round)
        if round == 3 and 4 in cohort.ids.tolist() and note.exists():
            if note.read_text() == "once":
                note.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return update


class Refusing(FedAvg):
    """A client finds that something is wrong."""

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        if round == 1 and 4 in cohort.ids.tolist():
            if self.context.partition == "defect":
                raise ZeroDivisionError("no")
            raise FedquiltError("Client 4 will not; ask it nicely.")
        return super().local_update(state, cohort, down, round)


def made(cls: type[FedAvg], partition: str) -> FedAvg:
    clients = ragged_clients()
    method = make_method("fedavg", clients, make_task(clients, partition=partition))
    return cls(method.settings, method.context)


def kill(engine: RayWorkers, worker: int) -> None:
    pid = ray.get(engine._actors[worker].__ray_call__.remote(lambda self: os.getpid()))
    os.kill(pid, signal.SIGKILL)


@pytest.mark.e2e
def test_lost_workers_are_replaced_and_nothing_changes(
    running: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """One is killed between rounds, before the first snapshot; the other in the middle of a round, after one."""
    monkeypatch.setattr(ray_workers, "SNAPSHOT_ROUNDS", 2)
    plan, note = Plan(5, participation=0.8), tmp_path / "kill"
    with monkeypatch.context() as patch:
        patch.setattr(RayWorkers, "_actor", pool(running))
        calm = on_workers(made(Fatal, str(note)), plan)
        calm.run()
    shaken = on_workers(made(Fatal, str(note)), plan)
    note.write_text("once")

    def on_round(record: dict) -> None:
        if record["round"] == 0:
            kill(shaken.engine, 0)

    shaken.on_round = on_round
    shaken.run()
    assert not note.exists()
    assert [r.getMessage()[:17] for r in caplog.records] == ["Worker 0 was lost", "Worker 1 was lost"]
    assert_same_training(shaken, calm)


@pytest.mark.e2e
def test_a_worker_that_is_lost_again_and_again_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ray_workers, "REPLACEMENTS", 1)
    note = tmp_path / "kill"
    note.write_text("always")
    training = on_workers(made(Fatal, str(note)), Plan(5))
    with pytest.raises(
        FedquiltError, match=r"^Worker 1 was lost 2 times at the same work \(round\), so this stops here; "
    ):
        training.run()
    assert training.progress.next_round == 3


@pytest.mark.e2e
def test_what_a_client_finds_wrong_arrives_as_it_was_said_and_is_not_tried_again(
    pooled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = on_workers(made(Refusing, "disjoint"), Plan(3))
    monkeypatch.setattr(training.engine, "_start", lambda w: pytest.fail("replaced"))
    with pytest.raises(FedquiltError) as caught:
        training.run()
    assert type(caught.value) is FedquiltError
    assert str(caught.value) == "Client 4 will not; ask it nicely."
    with pytest.raises(ZeroDivisionError) as defect:
        on_workers(made(Refusing, "defect"), Plan(3)).run()
    assert type(defect.value) is ZeroDivisionError
    assert "local_update" in str(defect.value.__cause__)  # where it happened is not lost


def test_divergence_is_the_same_sentence(pooled: None) -> None:
    method = make_method("fedavg", ragged_clients(), lr=1e30)
    said = []
    for make in (on_workers, in_process):
        with pytest.raises(FedquiltError, match="Training diverged") as caught:
            make(method, Plan(3)).run()
        said.append(str(caught.value))
    assert said[0] == said[1]


# -- room ------------------------------------------------------------------------------------------------------------


def test_no_room_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "START_SECONDS", 0.0)
    clients = ragged_clients()
    with pytest.raises(FedquiltError, match="Ray found no room for 2 of 2 workers in 0 seconds"):
        RayWorkers(make_method("fedavg", clients), clients, 2)


def test_more_workers_than_clients_is_one_sentence() -> None:
    clients = ragged_clients()
    with pytest.raises(FedquiltError, match="6 workers cannot share 5 clients; use --workers 5 or fewer"):
        RayWorkers(make_method("fedavg", clients), clients, 6)


def test_near_equal_parts() -> None:
    assert near_equal([1, 1, 1, 1], 2) == [range(0, 2), range(2, 4)]
    assert near_equal([100, 1, 1, 1], 3) == [range(0, 1), range(1, 2), range(2, 4)]
    assert near_equal([1, 1, 100], 3) == [range(0, 1), range(1, 2), range(2, 3)]
    rng = np.random.default_rng(0)
    for clients in range(1, 12):
        sizes = rng.integers(1, 50, clients).tolist()
        for parts in range(1, clients + 1):
            cut = near_equal(sizes, parts)
            assert [i for part in cut for i in part] == list(range(clients))
            assert all(len(part) for part in cut)
            assert len(cut) == parts
    sizes = [25, 14, 31, 9, 18, 22, 17, 30]
    assert [sum(sizes[i] for i in part) for part in near_equal(sizes, 3)] == [70, 49, 47]


def test_the_ray_that_runs_has_these_cores_and_no_gpu_and_is_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads_each(workers) for workers in (1, 2, 3)] == [2, 1, 1]
    assert not gpu_each(2, torch.device("cuda"))
    with cluster():
        assert ray.is_initialized()
    assert ray.is_initialized()
