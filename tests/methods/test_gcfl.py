"""GCFL: clusters of clients, cut where they disagree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.methods.gcfl import CLUSTER, COSINE, KNOWN, REFERENCE, Gcfl, mean_length
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import Wiretap, assert_same, make_method, make_training, ragged_clients, tapped_run

EAGER = {"eps_1": 5.0, "eps_2": 5.0, "thresholds": "absolute", "first_cut": 0}


def make(**settings: Any) -> Gcfl:
    return make_method("gcfl", ragged_clients(), **settings)


def uploads_of(method: Gcfl, updates: torch.Tensor) -> dict[str, torch.Tensor]:
    """Uploads whose updates are one number for every weight of the first layer: [n] -> uploads of n clients."""
    start = method.public_start()
    out = {name: value.repeat(len(updates), *[1] * value.dim()) for name, value in start.items()}
    name = "model.conv1.bias"
    out[name] = out[name].clone()
    out[name][:, : updates.shape[1]] += updates
    return out | {"train_nodes": torch.arange(1.0, len(updates) + 1)}


def test_without_a_cut_it_is_fedavg() -> None:
    clients = ragged_clients()
    one, two = (tapped_run(make_method(name, clients), clients, 4, 0.6)[1] for name in ("gcfl", "fedavg"))
    for mine, theirs in zip(one.ups[1:], two.ups[1:], strict=True):
        assert all(torch.allclose(mine[name], theirs[name], atol=1e-6) for name in theirs)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_each_cluster_averages_its_own(participation: float) -> None:
    """A plain loop over clusters and clients, from the uploads and the clusters of each round."""
    clients = ragged_clients()
    method = make_method("gcfl", clients, first_cut=1, eps_1=0.9, eps_2=0.9, thresholds="relative")
    training = make_training(method, clients, Plan(6, participation))
    tap, seen = Wiretap(training.engine), []
    aggregate = training.runner.aggregate

    def watched(server: Any, *rest: Any) -> Any:
        down = aggregate(server, *rest)
        seen.append((server[CLUSTER].clone(), rest[1].clone(), rest[2].clone()))
        return down

    training.runner.aggregate = watched
    training.run()
    name = "model.conv2.weight"
    start = method.public_start()[name].double().numpy()
    models = {0: start}
    before = np.zeros(5, dtype=int)
    for round, (cluster, senders, receivers) in enumerate(seen):
        up, cluster = tap.ups[round], cluster.numpy()
        models |= {new: models[before[cluster == new][0]] for new in set(cluster.tolist()) - models.keys()}
        before = cluster
        for number in list(models):
            here = [place for place, client in enumerate(senders.tolist()) if cluster[client] == number]
            if here:
                n = up["train_nodes"][here].double().numpy()
                w = up[name][here].double().numpy()
                models[number] = (n[:, None, None] * w).sum(0) / n.sum()
        if round + 1 < len(seen):
            expected = np.stack([models[cluster[client]] for client in receivers.tolist()])
            assert_near(tap.downs[round + 1][name], torch.from_numpy(expected).float())
    assert len(models) > 1


def test_lengths_and_cosines_are_of_updates_from_the_own_clusters_model() -> None:
    method = make()
    server, _ = method.server_start()
    updates = torch.tensor([[3.0, 4.0], [0.6, 0.8], [-1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    everyone = torch.arange(5)
    method.aggregate(server, uploads_of(method, updates), everyone, everyone)
    u = updates.double().numpy()
    length = np.linalg.norm(u, axis=1)
    assert_near(server[COSINE], torch.from_numpy(u @ u.T / np.outer(length, length)).float())
    assert float(server[REFERENCE]) == pytest.approx(length.mean(), rel=1e-5)
    n = np.arange(1.0, 6.0)
    mean = np.linalg.norm((n[:, None] * u).sum(0) / n.sum())
    assert float(mean_length(torch.from_numpy(u @ u.T), torch.from_numpy(n))) == pytest.approx(mean)


def test_a_cluster_is_cut_where_its_mean_is_short_and_a_member_is_not() -> None:
    opposed = torch.tensor([[2.0, 0.1], [2.0, 0.0], [-2.0, 0.1], [-2.0, 0.0], [2.0, -0.1]])
    everyone = torch.arange(5)
    for settings, parts in [
        ({"eps_1": 1.0, "eps_2": 1.5}, [0, 0, 1, 1, 0]),
        ({"eps_1": 0.1, "eps_2": 1.5}, [0] * 5),  # the mean is longer
        ({"eps_1": 1.0, "eps_2": 2.5}, [0] * 5),  # nobody's is so long
        ({"eps_1": 1.0, "eps_2": 1.5, "first_cut": 1}, [0] * 5),  # too early
    ]:
        method = make(**{"thresholds": "absolute", "first_cut": 0} | settings)
        server, _ = method.server_start()
        method.aggregate(server, uploads_of(method, opposed), everyone, everyone)
        assert server[CLUSTER].tolist() == parts, settings
    # The same where thresholds are shares of the first round's mean length, 2.
    method = make(thresholds="relative", first_cut=0, eps_1=0.5, eps_2=0.75)
    server, _ = method.server_start()
    method.aggregate(server, uploads_of(method, opposed), everyone, everyone)
    assert server[CLUSTER].tolist() == [0, 0, 1, 1, 0]
    found = method.diagnostics(server)
    assert (float(found["clusters"]), float(found["largest_cluster"])) == (2, 3)
    assert float(found["agreement"]) > 0.95


def test_clusters_of_two_are_left() -> None:
    method = make(**EAGER)
    server, _ = method.server_start()
    everyone, product, ones = torch.arange(5), 36 * torch.eye(5).double(), torch.ones(5).double()
    server[KNOWN].fill_(True)
    for cluster, due in (([0, 0, 0, 1, 1], [True, False]), ([0, 1, 1, 1, 1], [False, True])):
        server[CLUSTER].copy_(torch.tensor(cluster))
        assert [method.due(server, number, everyone, product, ones) for number in (0, 1)] == due


def test_a_cluster_of_which_nobody_sent_keeps_its_model() -> None:
    method = make()
    server, _ = method.server_start()
    server[CLUSTER].copy_(torch.tensor([0, 0, 1, 1, 1]))
    for name in method.shapes():
        server["centre." + name] = torch.cat([server["centre." + name], server["centre." + name] + 1])
    sent = uploads_of(method, torch.tensor([[4.0], [1.0]]))
    down = method.aggregate(server, sent, torch.tensor([0, 1]), torch.arange(5))
    bias = down["model.conv1.bias"]
    assert_near(bias[:, 0], torch.tensor([2.0, 2.0, 1.0, 1.0, 1.0]))  # (1 * 4 + 2 * 1) / 3; the other's is as it was


def test_pairs_that_never_met_count_as_the_others_do_on_average() -> None:
    method = make(edges="cosines")
    server, _ = method.server_start()
    server[COSINE][0, 1] = server[COSINE][1, 0] = 0.8
    server[COSINE][1, 2] = server[COSINE][2, 1] = 0.4
    for i, j in ((0, 1), (1, 0), (1, 2), (2, 1)):
        server[KNOWN][i, j] = True
    found = method.similar(server, torch.tensor([0, 1, 2]))
    assert_near(found, torch.tensor([[1.0, 0.8, 0.6], [0.8, 1.0, 0.4], [0.6, 0.4, 1.0]]))


def test_layers_alone_leave_the_classifier_at_home() -> None:
    clients = ragged_clients()
    tap = tapped_run(make_method("gcfl", clients, share="layers"), clients, 2, 1.0)[1]
    assert not [name for name in tap.ups[0] if "classifier" in name]
    assert set(tap.downs[1]) == set(tap.ups[0]) - {"train_nodes"}


def test_clusters_resume_where_they_were() -> None:
    """The server's state grows with the clusters, and is all there is."""
    clients = ragged_clients()
    settings = {"first_cut": 0, "eps_1": 0.9, "eps_2": 0.9}
    method = make_method("gcfl", clients, **settings)
    training = make_training(method, clients, Plan(3))
    training.run()
    server = {name: tensor.clone() for name, tensor in training.runner.server.items()}
    assert len(server["centre.conv1.bias"]) == int(server[CLUSTER].max()) + 1 > 1
    again = make_method("gcfl", clients, **settings)
    uploads = uploads_of(method, torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    one = method.aggregate(training.runner.server, uploads, torch.arange(5), torch.arange(5))
    two = again.aggregate(server, uploads, torch.arange(5), torch.arange(5))
    assert_same(one, two)
    assert_same(training.runner.server, server)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(FedquiltError, match=r"eps_1=0\.7 is above eps_2=0\.6"):
        make(eps_1=0.7, eps_2=0.6)
    for setting in ({"eps_1": 0.0}, {"eps_2": -1.0}, {"first_cut": -1}, {"edges": "all"}):
        with pytest.raises(FedquiltError, match=next(iter(setting))):
            make(**setting)
