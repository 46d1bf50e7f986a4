"""Sums and dot products over edges equal loops over edges, and their gradients those of dense autograd."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.edges import Edges, Links
from support.clients import PADDING, assert_near, client_lists, dense_adjacency, lay, numbers, random_client

FACTORS = [1, 3]
seeds = st.integers(0, 2**31)


def hard_clients() -> list[Client]:
    """One node; no edge; an isolated node; a clique; sizes far apart."""
    rng = np.random.default_rng(5)
    clients = [
        random_client(rng, 0, 1),
        random_client(rng, 1, 12, edges=0.0),
        random_client(rng, 2, 3, edges=1.0),
        random_client(rng, 3, 16, edges=0.12),
    ]
    assert not clients[1].graph.edges.size
    assert (dense_adjacency(clients[3]).sum(1) == 0).any()
    return clients


def entries(cohort: Cohort) -> list[tuple[int, int]]:
    """The directed edges (u, v) as rows of the cohort, sorted."""
    pairs = []
    for first, client in zip(cohort.start.tolist(), cohort.members, strict=True):
        for u, v in client.graph.edges.T.tolist():
            pairs += [(first + u, first + v), (first + v, first + u)]
    return sorted(pairs)


def looped_sum(pairs: list[tuple[int, int]], factors: int, rows: int, weight: Tensor, z: Tensor) -> Tensor:
    out = torch.zeros_like(z)
    for k, (e, (u, v)) in itertools.product(range(factors), enumerate(pairs)):
        out[k * rows + u] += weight[k * len(pairs) + e] * z[k * rows + v]
    return out


def looped_dot(pairs: list[tuple[int, int]], factors: int, rows: int, c: Tensor, z: Tensor) -> Tensor:
    out = [c[k * rows + u] @ z[k * rows + v] for k, (u, v) in itertools.product(range(factors), pairs)]
    return torch.stack(out) if out else z.new_zeros(0)


def dense_index(pairs: list[tuple[int, int]], factors: int, rows: int) -> tuple[Tensor, Tensor]:
    """Where each entry lies in a dense [K R, K R] matrix."""
    u, v = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    shift = (torch.arange(factors) * rows).unsqueeze(1)
    return (u + shift).flatten(), (v + shift).flatten()


def dense_sum(pairs: list[tuple[int, int]], factors: int, rows: int, weight: Tensor, z: Tensor) -> Tensor:
    matrix = weight.new_zeros(factors * rows, factors * rows).index_put(dense_index(pairs, factors, rows), weight)
    return matrix @ z


def dense_dot(pairs: list[tuple[int, int]], factors: int, rows: int, c: Tensor, z: Tensor) -> Tensor:
    return (c @ z.T)[dense_index(pairs, factors, rows)]


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("factors", FACTORS)
@example(clients=hard_clients(), seed=0, width=4)
@settings(max_examples=8)
@given(clients=client_lists(most=3), seed=seeds, width=st.integers(1, 9))
def test_sum_and_dot_equal_a_loop(factors: int, rows: str, clients: list[Client], seed: int, width: int) -> None:
    cohort = lay(clients, rows)
    edges, pairs = Edges(cohort, factors), entries(cohort)
    assert (edges.rows, edges.count) == (factors * cohort.rows, factors * len(pairs))
    c, z = numbers(seed, 2, factors * cohort.rows, width)
    weight = numbers(seed + 1, factors * len(pairs))
    assert_near(edges.sum(weight, z), looped_sum(pairs, factors, cohort.rows, weight.double(), z.double()))
    assert_near(edges.dot(c, z), looped_dot(pairs, factors, cohort.rows, c.double(), z.double()))


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("factors", FACTORS)
@example(clients=hard_clients(), seed=0, width=4)
@settings(max_examples=12)
@given(clients=client_lists(), seed=seeds, width=st.integers(1, 9))
def test_gradients_equal_dense_ones(factors: int, rows: str, clients: list[Client], seed: int, width: int) -> None:
    cohort = lay(clients, rows)
    edges, pairs = Edges(cohort, factors), entries(cohort)
    tall, long = (factors * cohort.rows, width), (factors * len(pairs),)
    for ours, dense, shapes, result in (
        (edges.sum, dense_sum, (long, tall), tall),
        (edges.dot, dense_dot, (tall, tall), long),
    ):
        inputs = [numbers(seed + i, *shape).requires_grad_() for i, shape in enumerate(shapes)]
        plain = [one.detach().double().requires_grad_() for one in inputs]
        pull = numbers(seed + 2, *result)
        out, expected = ours(*inputs), dense(pairs, factors, cohort.rows, *plain)
        assert_near(out.detach(), expected.detach())
        found = torch.autograd.grad((out * pull).sum(), inputs)
        wanted = torch.autograd.grad((expected * pull.double()).sum(), plain)
        for one, two in zip(found, wanted, strict=True):
            assert_near(one, two)


@pytest.mark.parametrize("factors", FACTORS)
def test_gradcheck(factors: int) -> None:
    cohort = lay([random_client(np.random.default_rng(1), m, n, edges=0.5) for m, n in enumerate((4, 1, 3))])
    edges = Edges(cohort, factors)
    assert edges.count
    c, z = (numbers(i, factors * cohort.rows, 2).double().requires_grad_() for i in range(2))
    weight = numbers(2, edges.count).double().requires_grad_()
    assert torch.autograd.gradcheck(edges.sum, (weight, z))
    assert torch.autograd.gradcheck(edges.dot, (c, z))


@pytest.mark.parametrize("factors", FACTORS)
def test_tensors_need_not_be_contiguous(factors: int) -> None:
    """Neither what goes in, nor the gradient that comes back: that of a plain sum is one number, expanded."""
    cohort = lay([random_client(np.random.default_rng(1), m, n, edges=0.5) for m, n in enumerate((7, 5))])
    edges, pairs = Edges(cohort, factors), entries(cohort)
    c, z = (numbers(i, 3, factors * cohort.rows).T.requires_grad_() for i in range(2))
    weight = numbers(2, factors * len(pairs), 2)[:, 0].requires_grad_()
    assert not any(t.is_contiguous() for t in (c, z, weight))
    for ours, dense, inputs in ((edges.sum, dense_sum, (weight, z)), (edges.dot, dense_dot, (c, z))):
        plain = [one.detach().double().requires_grad_() for one in inputs]
        out, expected = ours(*inputs), dense(pairs, factors, cohort.rows, *plain)
        assert_near(out.detach(), expected.detach())
        found = torch.autograd.grad(out.sum(), inputs)
        for one, two in zip(found, torch.autograd.grad(expected.sum(), plain), strict=True):
            assert_near(one, two)


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    cohort = lay([random_client(np.random.default_rng(1), 0, 7, edges=0.5)])
    edges = Edges(cohort)
    z = numbers(0, cohort.rows, 3).requires_grad_()
    weight = numbers(1, edges.count)
    edges.sum(weight, z).square().sum().backward()
    assert z.grad is not None
    assert weight.grad is None
    weight.requires_grad_()
    edges.sum(weight, z.detach()).square().sum().backward()
    assert weight.grad is not None


def test_nothing_crosses_from_factor_to_factor_or_client_to_client() -> None:
    clients = [random_client(np.random.default_rng(2), m, 6, edges=0.6) for m in range(2)]
    cohort = lay(clients)
    edges = Edges(cohort, 2)
    z = numbers(0, 2, cohort.rows, 3)
    before = edges.sum(torch.ones(edges.count), z.view(-1, 3)).view(2, 2, 6, 3)
    z[1, 6:] += 1.0  # factor 1 of client 1
    after = edges.sum(torch.ones(edges.count), z.view(-1, 3)).view(2, 2, 6, 3)
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[1, 0], before[1, 0])
    assert not torch.equal(after[1, 1], before[1, 1])


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("factors", FACTORS)
def test_a_cohort_without_an_edge(factors: int, rows: str) -> None:
    cohort = lay([random_client(np.random.default_rng(0), m, n, edges=0.0) for m, n in enumerate((3, 1))], rows)
    edges = Edges(cohort, factors)
    assert edges.count == 0
    z = numbers(0, factors * cohort.rows, 4).requires_grad_()
    weight = torch.zeros(0, requires_grad=True)
    out, score = edges.sum(weight, z), edges.dot(z, z)
    assert not out.any()
    assert score.shape == (0,)
    (out.sum() + score.sum()).backward()
    assert not z.grad.any()
    assert weight.grad.shape == (0,)


def test_padding_rows_take_no_part() -> None:
    cohort = lay(hard_clients(), "padded")
    edges = Edges(cohort, 2)
    empty = (cohort.position >= torch.tensor(cohort.sizes)[cohort.client]).repeat(2)
    z = numbers(0, 2 * cohort.rows, 3).masked_fill(empty.unsqueeze(1), torch.nan).requires_grad_()
    out, score = edges.sum(torch.ones(edges.count), z), edges.dot(z, z)
    assert torch.isfinite(out).all()
    assert torch.isfinite(score).all()
    assert not out[empty].any()
    (out.sum() + score.sum()).backward()
    assert not z.grad[empty].any()


# -- any list of pairs -----------------------------------------------------------------------------


def random_links(seed: int, rows: int, count: int) -> tuple[Links, list[tuple[int, int]]]:
    """Pairs in one direction only, some of them several times, sorted by source alone; at most as many as a matrix has."""
    rng = np.random.default_rng(seed)
    count = min(count, rows * rows)
    source, target = np.sort(rng.integers(0, rows, count)), rng.integers(0, rows, count)
    repeated = rng.integers(0, count, count // 3) if count else []
    for e in repeated:  # the same pair again, beside itself
        if e + 1 < count and source[e] == source[e + 1]:
            target[e + 1] = target[e]
    return Links(torch.from_numpy(source), torch.from_numpy(target), rows), list(
        zip(source.tolist(), target.tolist(), strict=True)
    )


@example(seed=0, rows=1, count=1, width=2)
@example(seed=0, rows=4, count=0, width=2)
@example(seed=1, rows=6, count=36, width=3)
@given(seed=seeds, rows=st.integers(1, 12), count=st.integers(0, 40), width=st.integers(1, 6))
def test_links_of_any_pairs(seed: int, rows: int, count: int, width: int) -> None:
    links, pairs = random_links(seed, rows, count)
    count = len(pairs)
    assert (links.rows, links.count) == (rows, count)
    tall, long = (rows, width), (count,)
    u, v = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T

    def summed(weight: Tensor, z: Tensor) -> Tensor:
        return torch.zeros_like(z).index_add(0, u, weight.unsqueeze(1) * z[v])

    def dotted(c: Tensor, z: Tensor) -> Tensor:
        return (c[u] * z[v]).sum(1)

    for ours, plainly, shapes, result in (
        (links.sum, summed, (long, tall), tall),
        (links.dot, dotted, (tall, tall), long),
    ):
        inputs = [numbers(seed + i, *shape).requires_grad_() for i, shape in enumerate(shapes)]
        plain = [one.detach().double().requires_grad_() for one in inputs]
        pull = numbers(seed + 2, *result)
        out, expected = ours(*inputs), plainly(*plain)
        assert_near(out.detach(), expected.detach())
        found = torch.autograd.grad((out * pull).sum(), inputs)
        wanted = torch.autograd.grad((expected * pull.double()).sum(), plain)
        for one, two in zip(found, wanted, strict=True):
            assert_near(one, two)


@pytest.mark.parametrize("seed", range(3))
def test_links_gradcheck(seed: int) -> None:
    links, pairs = random_links(seed, 4, 12)
    assert len(set(pairs)) < len(pairs)
    assert {(v, u) for u, v in pairs} != set(pairs)
    c, z = (numbers(i, 4, 2).double().requires_grad_() for i in range(2))
    weight = numbers(2, 12).double().requires_grad_()
    assert torch.autograd.gradcheck(links.sum, (weight, z))
    assert torch.autograd.gradcheck(links.dot, (c, z))


@given(seed=seeds, rows=st.integers(1, 12), count=st.integers(0, 40))
def test_turned_links_are_the_same_pairs_the_other_way(seed: int, rows: int, count: int) -> None:
    links, pairs = random_links(seed, rows, count)
    count = len(pairs)
    turned, order = links.turned
    assert sorted(order.tolist()) == list(range(count))
    found = list(zip(turned.source.tolist(), turned.target.tolist(), strict=True))
    assert found == [(pairs[e][1], pairs[e][0]) for e in order.tolist()]
    assert [v for v, _ in found] == sorted(v for v, _ in found)
    z = numbers(seed, rows, 3)
    weight = numbers(seed + 1, count)
    assert_near(turned.dot(z, z), links.dot(z, z)[order])
    # sum_u weight_uv z_u is the transposed matrix times z
    matrix = torch.zeros(rows, rows, dtype=torch.float64)
    for e, (u, v) in enumerate(pairs):
        matrix[u, v] += weight[e].double()
    assert_near(turned.sum(weight[order], z), matrix.T @ z.double())


def test_pairs_may_be_repeated_more_often_than_a_matrix_has_entries() -> None:
    links = Links(torch.zeros(5, dtype=torch.int64), torch.tensor([0, 1, 1, 0, 1]), 2)
    assert links.dot(torch.ones(2, 3), torch.tensor([[1.0] * 3, [2.0] * 3])).tolist() == [3, 6, 6, 3, 6]


def test_a_row_may_have_no_pair() -> None:
    links = Links(torch.tensor([2, 2, 5]), torch.tensor([0, 0, 5]), 8)
    out = links.sum(torch.tensor([1.0, 2.0, 3.0]), torch.arange(8.0).unsqueeze(1) + 1)
    assert out.ravel().tolist() == [0, 0, 3, 0, 0, 18, 0, 0]


# -- other targets -------------------------------------------------------------------------------------


@example(clients=hard_clients(), seed=0)
@settings(max_examples=10)
@given(clients=client_lists(most=3), seed=seeds)
def test_retargeted_links_are_links_of_the_same_sources(clients: list[Client], seed: int) -> None:
    cohort = lay(clients)
    edges = Edges(cohort)
    before = edges.target.clone()
    stream = torch.Generator().manual_seed(seed)
    target = torch.randint(cohort.rows, (edges.count,), generator=stream)
    if edges.count:
        assert edges.turned[0].count == edges.count  # made for the old targets, and of no use for the new ones
    links, fresh = edges.retargeted(target), Links(edges.source.long(), target, cohort.rows)
    assert (links.rows, links.count) == (fresh.rows, fresh.count)
    assert torch.equal(links.source, fresh.source)
    assert torch.equal(links.target, fresh.target)
    assert links.target.dtype == torch.int32
    assert torch.equal(edges.target, before)
    c, z = numbers(seed, 2, cohort.rows, 4)
    weight = numbers(seed + 1, edges.count)
    for mine, other in ((links.sum, fresh.sum), (links.dot, fresh.dot)):
        first = (weight if mine == links.sum else c).clone().requires_grad_()
        second = z.clone().requires_grad_()
        out, expected = mine(first, second), other(first, second)
        assert torch.equal(out, expected)
        pull = numbers(seed + 2, *out.shape)
        for one, two in zip(
            torch.autograd.grad((out * pull).sum(), (first, second)),
            torch.autograd.grad((expected * pull).sum(), (first, second)),
            strict=True,
        ):
            assert torch.equal(one, two)
    assert_near(links.dot(c, z), (c[edges.source.long()] * z[target]).sum(1))


def test_edges_come_sorted_however_a_graph_has_them() -> None:
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, nodes) for m, nodes in enumerate((9, 4, 12))]
    cohort = lay(clients, "compact")
    for client in clients:
        edges = client.graph.edges
        edges[:] = edges[:, rng.permutation(edges.shape[1])]
    found = Edges(cohort)
    assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == entries(cohort)


@pytest.mark.parametrize("width", [3, 8, 20])
@pytest.mark.parametrize("equal", [False, True])
def test_pairs_of_fewer_rows_with_more(equal: bool, width: int) -> None:
    """Five rows u with three of nine rows v each: sums, products and their gradients, and totals."""
    target = torch.randint(9, (5, 3), generator=torch.Generator().manual_seed(0))
    source = torch.arange(5).repeat_interleave(3)
    links = Links.equally_many(target, 9) if equal else Links(source, target.flatten(), 5, 9)
    assert (links.rows, links.columns, links.count, links.each) == (5, 9, 15, 3 if equal else None)
    assert links.source.tolist() == source.tolist()
    c, z, weight = numbers(1, 5, width), numbers(2, 9, width), numbers(3, 15)
    assert_near(links.total(weight), weight.view(5, 3).sum(1))
    for pull, made, expected in (
        (numbers(4, 5, width), lambda z, p: links.sum(p, z), lambda z, p: (p.view(5, 3, 1) * z[target]).sum(1)),
        (numbers(4, 15), lambda z, p: links.dot(c, z) * p, lambda z, p: (c[source] * z[target.flatten()]).sum(1) * p),
    ):
        found = []
        for compute in (made, expected):
            leaves = [z.clone().requires_grad_(), weight.clone().requires_grad_()]
            out = compute(*leaves)
            found.append([out.detach(), *torch.autograd.grad((out * pull).sum(), leaves)])
        for one, two in zip(*found, strict=True):
            assert_near(one, two)


@pytest.mark.parametrize("rows", PADDING)
def test_a_sum_onto_rows_and_products_of_rows_with_themselves(rows: str) -> None:
    """Values and gradients of the same by sums and products of other rows."""
    cohort = lay(hard_clients(), rows)
    edges = Edges(cohort, 2)
    for made, expected in (
        (lambda z, p: edges.sum_onto(p, z), lambda z, p: edges.sum(p, z) + z),
        (lambda z, p: edges.self_dot(z) * p, lambda z, p: edges.dot(z, z) * p),
    ):
        found = []
        for compute in (made, expected):
            leaves = [numbers(0, edges.rows, 4).requires_grad_(), numbers(1, edges.count).requires_grad_()]
            out = compute(*leaves)
            found.append([out.detach(), *torch.autograd.grad((out * numbers(2, *out.shape)).sum(), leaves)])
        for one, two in zip(*found, strict=True):
            assert_near(one, two)
