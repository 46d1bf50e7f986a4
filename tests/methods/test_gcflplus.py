"""GCFL+: clusters are cut by how the lengths of updates went over the last rounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.methods.gcfl import CLUSTER
from fedquilt.methods.gcflplus import COUNT, DISTANCE, SEQUENCE, GcflPlus
from fedquilt.nn.time_warping import warping_distances
from support.clients import assert_near
from support.federations import make_method, ragged_clients, tapped_run

NEVER = {"eps_1": 1e-9}


def make(**settings: Any) -> GcflPlus:
    return make_method("gcflplus", ragged_clients(), **settings)


def lengths_sent(tap: Any, round: int) -> torch.Tensor:
    """The lengths of the senders' updates in a round after the first, in which all have one cluster's model."""
    names = [name for name in tap.ups[round] if name != "train_nodes"]
    moved = [(tap.ups[round][name] - tap.downs[round][name]).flatten(1) for name in names]
    return torch.cat(moved, 1).norm(dim=1)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_sequences_have_each_clients_last_lengths(participation: float) -> None:
    clients = ragged_clients()
    training, tap = tapped_run(make_method("gcflplus", clients, window=3, **NEVER), clients, 7, participation)
    parts = [r["participants"] if r["participants"] != "all" else list(range(5)) for r in training.records]
    expected: list[list[float]] = [[] for _ in clients]
    for round, here in enumerate(parts):
        found = lengths_sent(tap, round) if round else torch.full((len(here),), torch.nan)
        for place, client in enumerate(here):
            expected[client].append(float(found[place]))
    server = training.runner.server
    assert server[COUNT].tolist() == [len(one) for one in expected]
    for sequence, one in zip(server[SEQUENCE], expected, strict=True):
        known = [value for value in one[-3:] if value == value]
        assert_near(sequence[len(sequence) - len(known) :], torch.tensor(known))


def waves(method: GcflPlus) -> dict[str, torch.Tensor]:
    """A server's state in which clients 1 and 3 had rising updates, the others falling ones, of any size."""
    server, _ = method.server_start()
    rising = torch.linspace(1.0, 2.0, method.settings.window)
    server[SEQUENCE].copy_(torch.stack([rising.flip(0), rising, 3 * rising.flip(0), 5 * rising, 4 * rising.flip(0)]))
    server[COUNT].fill_(method.settings.window)
    return server


def test_clients_whose_updates_went_alike_stay_together() -> None:
    method = make(window=6, standardise=True)
    server = waves(method)
    method.cut(server, 0)
    assert server[CLUSTER].tolist() == [0, 1, 0, 1, 0]
    assert server[COUNT].tolist() == [0] * 5  # sequences begin anew
    rows = server[SEQUENCE] / server[SEQUENCE].std(dim=1, keepdim=True)
    assert_near(server[DISTANCE], warping_distances(rows))
    # As they are, sizes count for more than trends.
    plain = make(window=6)
    server = waves(plain)
    plain.cut(server, 0)
    assert server[CLUSTER].tolist() != [0, 1, 0, 1, 0]


def test_edges_are_distances_below_the_mean_or_the_largest() -> None:
    everyone = torch.arange(5)
    distance = warping_distances(make().sequences(waves(make())))
    pairs = distance[~torch.eye(5, dtype=torch.bool)]
    for edges, level in (("mean", pairs.mean()), ("smallest", pairs.max())):
        method = make(edges=edges)
        assert_near(method.similar(waves(method), everyone), (level - distance).clamp_min(0.0))


def test_a_cluster_is_cut_when_all_of_its_members_have_a_whole_sequence() -> None:
    method = make(window=4)
    server = waves(method)
    members = torch.arange(5)
    assert method.ready(server, members)
    server[COUNT][2] = 3
    assert not method.ready(server, members)
    assert method.ready(server, torch.tensor([0, 1, 3]))


def test_it_cuts_in_training_once_sequences_are_long_enough() -> None:
    clients = ragged_clients()
    settings = {"eps_1": 0.6, "eps_2": 0.6, "first_cut": 0, "lr": 0.05}
    found = {}
    for window in (2, 30):
        training, _ = tapped_run(make_method("gcflplus", clients, window=window, **settings), clients, 6, 1.0)
        found[window] = training.records[-1]["diagnostics"]["clusters"]
    assert found[2] > 1
    assert found[30] == 1


def test_settings_outside_their_range_are_refused() -> None:
    for setting in ({"window": 1}, {"edges": "cosines"}, {"standardise": "perhaps"}):
        with pytest.raises(FedquiltError, match=next(iter(setting))):
            make(**setting)
