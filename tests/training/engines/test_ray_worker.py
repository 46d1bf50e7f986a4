"""A worker: an in-process engine whose messages are arrays. It needs no Ray to be tested."""

from __future__ import annotations

from copy import deepcopy

import torch

from fedquilt.messages.message import Sparse
from fedquilt.training.engines.base import EVALUATION_FIELDS
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.engines.ray_worker import RayWorker, as_arrays, pack, unpack
from support.federations import assert_same, copied, make_method, ragged_clients

CPU = torch.device("cpu")


def test_packing_keeps_what_is_sparse_and_copies() -> None:
    message = {"dense": torch.arange(3), "thin": Sparse(torch.eye(2))}
    back = unpack(pack(message), CPU)
    assert isinstance(back["thin"], Sparse)
    assert_same(copied(back), copied(message))
    back["dense"][0] = 9
    assert message["dense"][0] == 0


def test_a_worker_gives_what_its_engine_gives() -> None:
    clients = ragged_clients()
    method, threads = make_method("fedavg", clients), torch.get_num_threads()
    worker, engine = RayWorker(), InProcess(method, clients, cohort_size=2)
    worker.open(type(method), method.settings, method.context, clients, "cpu", 2, "float32", threads)
    uploads, metrics = worker.round(0, [1, 3], True, {}, {}, {})
    expected, evaluation = engine.round(0, torch.tensor([1, 3]), {}, evaluate=True)
    assert_same(copied(unpack(uploads, CPU)), copied(expected))
    for mine in (metrics, worker.metrics()):
        assert set(mine) == set(EVALUATION_FIELDS)
        assert_same(
            {n: torch.tensor(v) for n, v in mine.items()},
            {n: torch.tensor(v) for n, v in as_arrays(evaluation).items()},
        )
    assert_same(copied(unpack(worker.personal(), CPU)), engine.personal())
    state = deepcopy(worker.state())  # Ray would copy it
    worker.round(1, [0], False, {}, {}, {})
    worker.restore(state)
    assert_same(worker.engine.state(), engine.state())
