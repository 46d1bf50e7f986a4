"""Batches: parts of the clients' graphs as a cohort, whose turns cover every client's epochs."""

from __future__ import annotations

import weakref

import numpy as np
import torch

from fedquilt.cohort.batches import Schedule, fits, steps_an_epoch
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.features import as_scipy
from fedquilt.devices.cuda_graph import without_garbage_collection
from support.clients import gcn_operator
from support.federations import ragged_clients

CLIENTS = ragged_clients((40, 9, 60))
COHORT = Cohort(CLIENTS)


def test_every_client_takes_its_own_steps_of_every_epoch() -> None:
    assert steps_an_epoch(COHORT, 15).tolist() == [3, 1, 4]
    schedule = Schedule(COHORT, 15, 0, first=[4, 4, 4], epochs=[2, 2, 2])
    turns, trained = [], [0, 0, 0]
    for turn in schedule.turns({}):
        turns.append(turn)
        assert turn.batch.origin is COHORT
        for m, count in enumerate(turn.batch.train_count.tolist()):
            trained[m] += 0 if m in turn.waiting.tolist() else int(count)
    assert [turn.epoch for turn in turns] == [0] * 4 + [1] * 4
    assert [turn.waiting.tolist() for turn in turns[:4]] == [[], [1], [1], [0, 1]]
    assert [turn.begins.tolist() for turn in turns[:2]] == [[True] * 3, [False] * 3]
    assert turns[0].clock.tolist() == schedule.start.tolist() == [12, 4, 16]
    assert turns[7].clock[2] + 1 == schedule.end[2] == 24
    assert schedule.end.tolist() == [18, 6, 24]
    assert trained == [2 * len(client.training_nodes) for client in CLIENTS]


def test_clients_with_fewer_epochs_wait_for_the_others() -> None:
    turns = list(Schedule(COHORT, 15, 0, first=[0, 0, 0], epochs=[1, 3, 1]).turns({}))
    assert [turn.waiting.tolist() for turn in turns[4:]] == [[0, 2], [0, 2]]


def test_operators_are_normalised_by_the_edges_of_the_batch() -> None:
    turn = next(iter(Schedule(COHORT, 15, 0, [0] * 3, [1] * 3).turns({})))
    batch = turn.batch
    assert batch.members[1] is CLIENTS[1]
    gcn = as_scipy(batch.gcn).toarray()
    for m, part in enumerate(batch.members):
        rows = slice(batch.start[m], batch.start[m] + part.graph.nodes)
        assert np.allclose(gcn[rows, rows], gcn_operator(part), atol=1e-6)
    assert batch.sizes[0] < CLIENTS[0].graph.nodes


def test_constants_are_those_of_the_whole_graph() -> None:
    def count(client: Client) -> float:
        return float(client.graph.nodes)

    turn = next(iter(Schedule(COHORT, 15, 0, [0] * 3, [1] * 3).turns({"nodes": count})))
    assert [part.once("nodes", count) for part in turn.batch.members] == [40.0, 9.0, 60.0]


def test_a_cohort_fits_where_its_largest_client_does() -> None:
    assert fits(COHORT, 60)
    assert not fits(COHORT, 59)
    assert COHORT.origin is COHORT
    assert torch.equal(steps_an_epoch(COHORT, 60), torch.ones(3))


def test_a_batch_is_freed_when_its_turn_is_over() -> None:
    """Without the garbage collector, which comes when it likes."""
    steps, alive = 0, []
    with without_garbage_collection():
        for turn in Schedule(COHORT, 15, 0, [0] * 3, [2] * 3).turns({}):
            made = turn.batch.smoothed @ torch.ones(3, COHORT.features, 2)
            alive.append(weakref.ref(turn.batch.gcn.forward))
            assert len(made) == turn.batch.rows
            assert turn.batch.training.gcn is not None
            steps += 1
    assert sum(one() is not None for one in alive) <= 1 < steps
