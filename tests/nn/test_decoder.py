"""The inner-product decoder equals its formula on the pairs it drew, and draws them from its clients' own nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.graphs.graph import Graph
from fedquilt.nn.decoder import Pairs, reconstruction
from fedquilt.nn.edges import Links
from support.clients import PADDING, assert_near, client_lists, lay, random_client

seeds = st.integers(0, 2**31)


def hard_clients() -> list[Client]:
    """One node; no edge; a clique; sizes far apart."""
    rng = np.random.default_rng(5)
    sizes = ((1, 0.0), (12, 0.0), (3, 1.0), (16, 0.2))
    return [random_client(rng, m, n, edges=share) for m, (n, share) in enumerate(sizes)]


def draws(cohort: Cohort, step: int = 0, seed: int = 0) -> Draws:
    return Draws(client_keys(seed, cohort), step)


def random_z(cohort: Cohort, seed: int, width: int = 3) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return cohort.rows_of([torch.randn(n, width, generator=stream) for n in cohort.sizes], torch.nan)


def ends(links: Links) -> Tensor:
    """The pairs as [2, E] rows."""
    return torch.stack([links.source, links.target]).long()


def formula(cohort: Cohort, z: np.ndarray, others: np.ndarray) -> float:
    """-log p by hand: sigmoid(z_u . z_v) on edges, one minus that on the other pairs, means client by client."""
    total, first = 0.0, 0
    for start, client in zip(cohort.start, cohort.members, strict=True):
        own = np.array(sorted(client.graph.edges.T.tolist()), dtype=np.int64).reshape(-1, 2) + start
        logs = []
        for (u, v), (i, j) in zip(own, others.T[first : first + len(own)], strict=True):
            edge, other = (1.0 / (1.0 + np.exp(-z[a] @ z[b])) for a, b in ((u, v), (i, j)))
            logs += [np.log(edge), np.log(1.0 - other)]
        total -= np.mean(logs) if logs else 0.0
        first += len(own)
    return float(total)


@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients(), seed=0, step=0)
@given(clients=client_lists(), seed=seeds, step=st.integers(0, 10**6))
def test_reconstruction_equals_the_formula(rows: str, clients: list[Client], seed: int, step: int) -> None:
    cohort = lay(clients, rows)
    pairs, z, own = Pairs(cohort), random_z(cohort, seed), draws(cohort, step, seed)
    loss = reconstruction(pairs, z, own, 2)
    assert loss.shape == ()
    assert float(loss) == pytest.approx(
        formula(cohort, z.double().numpy(), ends(pairs.others(own, 2)).numpy()), rel=1e-5, abs=1e-6
    )


@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients(), seed=0)
@given(clients=client_lists(), seed=seeds)
def test_a_cohort_is_the_sum_of_its_clients(rows: str, clients: list[Client], seed: int) -> None:
    cohort = lay(clients, rows)
    z = random_z(cohort, seed).requires_grad_()
    total = reconstruction(Pairs(cohort), z, draws(cohort, 4, seed), 1)
    total.backward()
    expected = 0.0
    for m, client in enumerate(clients):
        one = lay([client])
        mine = cohort.parts_of(z.detach())[m].clone().requires_grad_()
        loss = reconstruction(Pairs(one), mine, draws(one, 4, seed), 1)
        loss.backward()
        expected += float(loss.detach())
        assert_near(cohort.parts_of(z.grad)[m], mine.grad)
        if not client.graph.edges.size:
            assert float(loss.detach()) == 0.0
            assert not mine.grad.any()
    assert float(total.detach()) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients(), seed=0)
@given(clients=client_lists(), seed=seeds)
def test_random_pairs_stay_inside_their_client(rows: str, clients: list[Client], seed: int) -> None:
    cohort = lay(clients, rows)
    pairs = Pairs(cohort)
    edges, others = ends(pairs.edges), ends(pairs.others(draws(cohort, seed=seed), 0))
    assert torch.equal(others[0], edges[0])  # the same sources, other targets
    owner = np.repeat(np.arange(len(clients)), [client.graph.edges.shape[1] for client in clients])
    for found in (edges, others):
        for end in found:
            assert np.array_equal(cohort.client[end].numpy(), owner)
            assert (cohort.position[end] < torch.tensor(cohort.sizes)[cohort.client[end]]).all()  # no padding


def test_random_pairs_are_uniform_and_new_each_step() -> None:
    cohort = lay([random_client(np.random.default_rng(0), m, n, edges=0.5) for m, n in enumerate((10, 30))], "compact")
    pairs = Pairs(cohort)
    steps = [ends(pairs.others(draws(cohort, step), 0)) for step in range(200)]
    assert not torch.equal(steps[0], steps[1])
    assert not torch.equal(steps[0], ends(pairs.others(draws(cohort), 1)))
    found = torch.cat(steps, dim=1)
    for m, n in enumerate(cohort.sizes):
        mine = found[:, cohort.client[found[0]] == m] - int(cohort.start[m])
        assert stats.chisquare(torch.bincount(mine[1], minlength=n).numpy()).pvalue > 1e-5
        # Whatever the source, any target is as likely.
        table = torch.bincount(mine[0] * n + mine[1], minlength=n * n).view(n, n)
        table = table[table.sum(1) > 0]
        assert stats.chi2_contingency(table.numpy()).pvalue > 1e-5


@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients())
@given(clients=client_lists())
def test_edges_are_those_of_the_clients_in_order(rows: str, clients: list[Client]) -> None:
    """Each once, client by client, in lexicographic order whatever order the graphs have them in."""
    shuffled = []
    for client in clients:
        g = client.graph
        order = np.random.default_rng(0).permutation(g.edges.shape[1])
        shuffled.append(Client(client.id, Graph(g.name, g.edges[:, order], g.x, g.y, g.classes), client.split))
    cohort = lay(shuffled, rows)
    expected = [
        (u + first, v + first)
        for first, client in zip(cohort.start.tolist(), clients, strict=True)
        for u, v in sorted(client.graph.edges.T.tolist())
    ]
    assert [tuple(pair) for pair in ends(Pairs(cohort).edges).T.tolist()] == expected


def test_gradient_equals_a_double_precision_one() -> None:
    cohort = lay(hard_clients(), "compact")
    pairs, own = Pairs(cohort), draws(cohort, 7)
    z = random_z(cohort, 1).requires_grad_()
    reconstruction(pairs, z, own, 0).backward()
    mine = z.detach().double().requires_grad_()
    counts = torch.tensor([client.graph.edges.shape[1] for client in cohort.members])
    weight = (0.5 / counts.clamp_min(1)).double().repeat_interleave(counts)
    edge, other = (
        torch.sigmoid((mine[u] * mine[v]).sum(1)) for u, v in (ends(pairs.edges), ends(pairs.others(own, 0)))
    )
    (-(edge.log() + (1.0 - other).log()) * weight).sum().backward()
    assert z.grad.any()
    assert_near(z.grad, mine.grad)


def test_scores_far_from_zero_stay_finite() -> None:
    cohort = lay(hard_clients(), "compact")
    z = (random_z(cohort, 1) * 100).requires_grad_()
    loss = reconstruction(Pairs(cohort), z, draws(cohort), 0)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(z.grad).all()


def test_descending_finds_the_edges() -> None:
    """Two cliques: their nodes end up alike within a clique, so that edges score above the rest."""
    u, v = np.triu_indices(16, k=1)
    same = (u < 8) == (v < 8)
    x, y = np.ones((16, 1), dtype=np.float32), np.zeros(16, dtype=np.int64)
    graph = Graph("cliques", np.stack([u, v])[:, same], x, y, 1)
    cohort = lay([Client(0, graph, np.zeros(16, dtype=np.int8))])
    pairs, z = Pairs(cohort), random_z(cohort, 0).requires_grad_()
    for step in range(200):
        (grad,) = torch.autograd.grad(reconstruction(pairs, z, draws(cohort, step), 0), [z])
        z.data -= 2.0 * grad
    score = z.detach() @ z.detach().T
    assert float(score[u[same], v[same]].min()) > float(score[u[~same], v[~same]].max())
