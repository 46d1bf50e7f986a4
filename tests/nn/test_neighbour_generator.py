"""The generator of missing neighbours, against plain loops that write all features out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.models import common_start
from fedquilt.nn.neighbour_generator import (
    codes,
    encode,
    generate,
    generator_shapes,
    impair,
    local_losses,
    numbers,
    peer_loss,
)
from fedquilt.nn.node_sample import sample_nodes
from support.clients import assert_near, dense_features
from support.federations import FEATURES, ragged_clients

MOST, CODE = 3, 4
CPU = torch.device("cpu")


def cohort_of(sparse: bool = False) -> Cohort:
    return Cohort(ragged_clients((25, 14, 31), sparse=sparse))


def weights(clients: int, seed: int = 5) -> dict[str, torch.Tensor]:
    drawn = common_start(generator_shapes(FEATURES, 6, CODE, MOST), seed, clients, CPU)
    stream = torch.Generator().manual_seed(seed)
    return {name: w + 0.3 * torch.randn(w.shape, generator=stream) for name, w in drawn.items()}


def neighbours(client, node: int) -> set[int]:
    u, v = client.graph.edges
    return set(v[u == node].tolist()) | set(u[v == node].tolist())


def test_half_of_the_nodes_are_hidden_and_the_rest_knows_nothing_of_them() -> None:
    cohort = cohort_of()
    graph = impair(cohort, 3, 0.5, MOST, 0)
    kept = set(graph.kept.tolist())
    mean = graph.mean.forward.to_dense()
    most = 0
    for m, client in enumerate(cohort.members):
        first = int(cohort.start[m])
        rows = [first + n for n in range(client.graph.nodes)]
        assert len(kept & set(rows)) == client.graph.nodes - client.graph.nodes // 2
        for row in kept & set(rows):
            near = {first + n for n in neighbours(client, row - first)}
            left, gone = near & kept, sorted(near - kept)
            expected = torch.zeros(cohort.rows)
            expected[list(left)] = 1.0 / max(1, len(left))
            assert_near(mean[row], expected)
            assert int(graph.missing[graph.kept == row]) == min(len(gone), MOST)
            if gone:
                at = int(torch.nonzero(graph.damaged == row))
                assert graph.hidden[at][graph.real[at]].tolist() == gone[:MOST]
            most = max(most, len(gone))
        for row in set(rows) - kept:
            assert not mean[row].any()
    assert most > MOST  # some lack more than are predicted


def test_what_is_hidden_is_the_same_in_any_cohort_and_another_in_another_draw() -> None:
    cohort = cohort_of()
    together = impair(cohort, 3, 0.5, MOST, 0)
    for m, client in enumerate(cohort.members):
        alone = impair(Cohort([client]), 3, 0.5, MOST, 0)
        mine = together.kept[cohort.client[together.kept] == m] - int(cohort.start[m])
        assert torch.equal(alone.kept, mine)
    assert not torch.equal(impair(cohort, 3, 0.5, MOST, 1).kept, together.kept)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_losses_are_those_of_features_written_out(sparse: bool) -> None:
    cohort = cohort_of(sparse)
    w, graph = weights(3), impair(cohort, 3, 0.5, MOST, 0)
    found = local_losses(cohort, w, graph)
    z = encode(cohort, w, graph.mean, graph.mean_x)
    said, made = numbers(cohort, w, z), codes(cohort, w, z)
    for m, client in enumerate(cohort.members):
        x = torch.from_numpy(dense_features(client))
        first, scale = int(cohort.start[m]), float(x.square().sum(1).mean())
        mine = [k for k, row in enumerate(graph.kept.tolist()) if cohort.client[row] == m]
        rows, missing = graph.kept[mine], graph.missing[mine]
        assert_near(found.number[m], F.smooth_l1_loss(said[rows], missing))
        assert_near(found.correlation[m], torch.from_numpy(np.corrcoef(said[rows].numpy(), missing.numpy()))[0, 1])
        each = []
        for at in [q for q, row in enumerate(graph.damaged.tolist()) if cohort.client[row] == m]:
            features = made[graph.damaged[at]] @ w["basis"][m]
            gone = x[graph.hidden[at][graph.real[at]] - first]
            nearest = (features.unsqueeze(1) - gone).square().sum(2).amin(1)
            each.append(nearest[: len(gone)].mean() / scale)
        assert_near(found.features[m], torch.stack(each).mean())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_loss_at_a_peer_is_that_of_features_written_out(sparse: bool) -> None:
    cohort = cohort_of(sparse)
    peer, sample = weights(3, seed=8), sample_nodes(cohort, 3, 20, 1)
    z = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
    real = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    found = peer_loss(cohort, peer, z, real, sample)
    for m, client in enumerate(cohort.members):
        x = torch.from_numpy(dense_features(client))
        own = x[sample.index[m][sample.real[m]] - int(cohort.start[m])]
        flat = torch.tanh(z[m] @ peer["codes.weight"][m] + peer["codes.bias"][m]).view(4, MOST, CODE)
        features = F.pad(flat, (0, 1), value=1.0) @ peer["basis"][m]
        nearest = (features.unsqueeze(2) - own).square().sum(3).amin(2) / x.square().sum(1).mean()
        assert_near(found[m], nearest[real[m]].mean() if real[m].any() else torch.tensor(0.0))


def test_a_node_gets_as_many_neighbours_as_are_predicted_and_at_most_so_many() -> None:
    cohort = cohort_of()
    w = weights(3)
    w["number.weight"] *= 20.0
    made = generate(cohort, w)
    z = encode(cohort, w, cohort.mean, cohort.mean_x)
    expected = numbers(cohort, w, z).round().clamp_max(MOST)
    assert torch.equal(made.count, expected)
    assert set(made.count[torch.from_numpy(cohort.taken)].tolist()) >= {0.0, float(MOST)}
    assert torch.equal((made.codes[:, :, -1] != 0).sum(1).float(), made.count)


def test_gradients_reach_all_weights() -> None:
    cohort = cohort_of()
    leaves = {name: w.requires_grad_() for name, w in weights(3).items()}
    losses = local_losses(cohort, leaves, impair(cohort, 3, 0.5, MOST, 0))
    (losses.number + losses.features).sum().backward()
    assert all(float(w.grad.abs().max()) > 0 for w in leaves.values())
