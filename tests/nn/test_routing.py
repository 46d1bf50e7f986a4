"""Neighbourhood routing equals its formula, loop by loop, and its gradients those of a plain implementation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.graph import Graph
from fedquilt.nn import routing
from fedquilt.nn.edges import Edges
from fedquilt.nn.routing import assignments, route, unit, unit_leaky
from support.clients import PADDING, assert_near, client_lists, dense_adjacency, lay, random_client

seeds = st.integers(0, 2**31)
SHAPES = [(1, 1, 1.0), (2, 3, 1.0), (3, 2, 0.3), (4, 5, 2.0), (5, 1, 1.0)]  # factors, iterations, temperature


def hard_clients() -> list[Client]:
    """One node; no edge; a clique; an isolated node beside others; sizes far apart."""
    rng = np.random.default_rng(5)
    sizes = ((1, 0.0), (12, 0.0), (3, 1.0), (16, 0.12))
    return [random_client(rng, m, n, edges=share) for m, (n, share) in enumerate(sizes)]


def connected_clients() -> list[Client]:
    rng = np.random.default_rng(6)
    return [random_client(rng, m, n, edges=0.5) for m, n in enumerate((7, 9))]


def random_aspects(cohort: Cohort, factors: int, width: int, seed: int, fill: float = 7.0) -> Tensor:
    """[K, R, d], padding rows `fill`."""
    stream = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, factors, width, generator=stream) for n in cohort.sizes]
    return cohort.rows_of(parts, fill).permute(1, 0, 2).contiguous()


def naive(client: Client, z: np.ndarray, iterations: int, temperature: float) -> np.ndarray:
    """The docstring's formula, node by node, neighbour by neighbour, factor by factor: z [K, n, d] -> [K, n, d]."""
    factors, nodes, _ = z.shape
    neighbours: list[list[int]] = [[] for _ in range(nodes)]
    for u, v in client.graph.edges.T.tolist():
        neighbours[u].append(v)
        neighbours[v].append(u)
    z = np.array([[z[k, u] / math.sqrt(z[k, u] @ z[k, u]) for u in range(nodes)] for k in range(factors)])
    c = z.copy()
    for _ in range(iterations):
        new = z.copy()
        for u in range(nodes):
            for v in neighbours[u]:
                score = [math.exp(z[k, v] @ c[k, u] / temperature) for k in range(factors)]
                for k in range(factors):
                    new[k, u] += score[k] / sum(score) * z[k, v]
            for k in range(factors):
                new[k, u] /= math.sqrt(new[k, u] @ new[k, u])
        c = new
    return c


def plain(client: Client, z: Tensor, iterations: int, temperature: float, through: bool) -> Tensor:
    """The same with dense matrices, for autograd to differentiate; p is a constant unless `through`."""
    a = torch.from_numpy(dense_adjacency(client))
    z = z / z.norm(dim=-1, keepdim=True)
    c = z
    for _ in range(iterations):
        p = torch.softmax(torch.einsum("kud,kvd->kuv", c, z) / temperature, dim=0) * a
        c = z + (p if through else p.detach()) @ z
        c = c / c.norm(dim=-1, keepdim=True)
    return c


def of_client(cohort: Cohort, aspects: Tensor, m: int) -> Tensor:
    first = int(cohort.start[m])
    return aspects[:, first : first + cohort.sizes[m]]


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize(("factors", "iterations", "temperature"), SHAPES)
@example(clients=hard_clients(), seed=0)
@settings(max_examples=5)
@given(clients=client_lists(most=3), seed=seeds)
def test_routing_equals_the_formula(
    factors: int, iterations: int, temperature: float, rows: str, clients: list[Client], seed: int
) -> None:
    cohort = lay(clients, rows)
    edges, z = Edges(cohort, factors), random_aspects(cohort, factors, 4, seed)
    for through in (False, True):
        out = route(edges, z, iterations, through, temperature)
        assert out.shape == z.shape
        assert_near(out.norm(dim=-1), torch.ones(factors, cohort.rows))
        for m, client in enumerate(clients):
            expected = naive(client, of_client(cohort, z, m).double().numpy(), iterations, temperature)
            # A vector that nearly cancels is divided by its small length, which magnifies rounding.
            assert_near(of_client(cohort, out, m), torch.from_numpy(expected), 2e-4)


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize(("factors", "iterations", "temperature"), SHAPES)
def test_assignments_are_the_last_shares(factors: int, iterations: int, temperature: float, rows: str) -> None:
    """p_uv^k of the last iteration: softmax over factors of z_v . c_u, with the c of all iterations before it."""
    clients = [*connected_clients(), *hard_clients()]
    cohort = lay(clients, rows)
    edges, z = Edges(cohort, factors), random_aspects(cohort, factors, 4, 1)
    flat = unit(z).reshape(-1, 4).requires_grad_()
    p = assignments(edges, flat, factors, iterations, temperature)
    assert p.shape == (edges.count,)
    assert not p.requires_grad
    p = p.view(factors, -1)
    assert_near(p.sum(0), torch.ones(p.shape[1]))
    source, target = (t.view(factors, -1)[0].long() for t in (edges.source, edges.target))
    for m, client in enumerate(clients):
        mine = of_client(cohort, z, m).double()
        own = torch.nn.functional.normalize(mine, dim=-1)
        before = plain(client, mine, iterations - 1, temperature, False)
        expected = torch.softmax(torch.einsum("kud,kvd->kuv", before, own) / temperature, dim=0)
        chosen, first = cohort.client[source] == m, int(cohort.start[m])
        assert_near(p[:, chosen], expected[:, source[chosen] - first, target[chosen] - first], 5e-5)


@pytest.mark.parametrize("rows", PADDING)
@settings(max_examples=15)
@given(clients=client_lists(most=4), seed=seeds, factors=st.integers(1, 4), iterations=st.integers(1, 4))
def test_a_cohort_is_its_clients_side_by_side(
    rows: str, clients: list[Client], seed: int, factors: int, iterations: int
) -> None:
    cohort = lay(clients, rows)
    z = random_aspects(cohort, factors, 3, seed)
    together = route(Edges(cohort, factors), z, iterations)
    for m, client in enumerate(clients):
        alone = route(Edges(lay([client]), factors), of_client(cohort, z, m), iterations)
        assert_near(of_client(cohort, together, m), alone, 1e-6)


@pytest.mark.parametrize("cached", [1, 30])
@pytest.mark.parametrize("rows", PADDING)
def test_clients_in_parts_have_the_same_assignments(rows: str, cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some clients at a time, one without an edge among them, with weights of edges and without."""
    clients = [*hard_clients(), *connected_clients()]
    clients = [Client(m, client.graph, client.split) for m, client in enumerate(clients)]
    weighted = [
        replace(c, graph=replace(c.graph, edge_weights=np.linspace(0.5, 2.0, c.graph.edges.shape[1], dtype=np.float32)))
        for c in clients
    ]
    for some in (clients, weighted):
        cohort = lay(some, rows)
        edges, z = Edges(cohort, 3), unit(random_aspects(cohort, 3, 4, seed=0).flatten(0, 1))
        whole = assignments(edges, z, 3, 4, 0.7)
        assert len(edges.parts(2**20)) == 1
        with monkeypatch.context() as patched:
            patched.setattr(routing, "CACHED", 12 * cached)
            parts = edges.parts(cached)
            assert 1 < len(parts) <= len(clients)
            assert sum(part.edges.count for part in parts) == edges.count
            assert_near(assignments(edges, z, 3, 4, 0.7), whole, 1e-6)


def test_one_factor_sums_all_neighbours() -> None:
    """With K = 1 every p is one: c = (z + A z) / || . ||, however often, whatever the temperature."""
    cohort = lay([*connected_clients(), *hard_clients()[2:]], "compact")
    z = random_aspects(cohort, 1, 5, 0)
    a = torch.zeros(cohort.rows, cohort.rows, dtype=torch.float64)
    for first, client in zip(cohort.start, cohort.members, strict=True):
        last = first + client.graph.nodes
        a[first:last, first:last] = torch.from_numpy(dense_adjacency(client))
    unit_z = torch.nn.functional.normalize(z[0].double(), dim=1)
    expected = torch.nn.functional.normalize(unit_z + a @ unit_z, dim=1)
    for iterations, temperature in ((1, 1.0), (4, 1.0), (2, 0.1)):
        assert_near(route(Edges(cohort), z, iterations, temperature=temperature)[0], expected)


def test_a_low_temperature_gives_each_edge_to_one_factor() -> None:
    """Two neighbours, each like the node in one aspect and unlike it in the other."""
    x, y = np.ones((3, 1), dtype=np.float32), np.zeros(3, dtype=np.int64)
    graph = Graph("star", np.array([[0, 0], [1, 2]]), x, y, 1)
    cohort = lay([Client(0, graph, np.zeros(3, np.int8))])
    right, up = [1.0, 0.0], [0.0, 1.0]
    z = torch.tensor([[right, right, up], [up, right, up]])  # factor 0: node 0 is like 1; factor 1: like 2
    out = route(Edges(cohort, 2), z, 3, temperature=1e-3)
    assert_near(out[:, 0], torch.tensor([right, up]))


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize(("factors", "iterations", "temperature"), SHAPES)
@pytest.mark.parametrize("rows", PADDING)
def test_gradient(rows: str, factors: int, iterations: int, temperature: float, through: bool) -> None:
    clients = [*connected_clients(), *hard_clients()]
    cohort = lay(clients, rows)
    z = random_aspects(cohort, factors, 4, 3).requires_grad_()
    pull = random_aspects(cohort, factors, 4, 4, fill=0.0)
    out = route(Edges(cohort, factors), z, iterations, through, temperature)
    (out * pull).sum().backward()
    for m, client in enumerate(clients):
        mine = of_client(cohort, z.detach(), m).double().requires_grad_()
        expected = plain(client, mine, iterations, temperature, through)
        (expected * of_client(cohort, pull, m)).sum().backward()
        assert_near(of_client(cohort, out.detach(), m), expected.detach(), 5e-5)
        assert_near(of_client(cohort, z.grad, m), mine.grad, 2e-4)


def test_both_gradients_differ_and_the_values_do_not() -> None:
    """Otherwise the test above would not tell them apart."""
    cohort = lay(connected_clients())
    found = []
    for through in (False, True):
        z = random_aspects(cohort, 3, 4, 3).requires_grad_()
        out = route(Edges(cohort, 3), z, 3, through)
        (out * random_aspects(cohort, 3, 4, 4, fill=0.0)).sum().backward()
        found.append((out.detach(), z.grad))
    assert_near(found[0][0], found[1][0], 1e-6)
    assert float((found[0][1] - found[1][1]).abs().max()) > 0.01


@pytest.mark.parametrize("through", [False, True])
def test_padding_rows_do_not_matter(through: bool) -> None:
    cohort = lay(hard_clients(), "padded")
    real = cohort.position < torch.tensor(cohort.sizes)[cohort.client]
    assert not real.all()
    found = []
    for fill in (0.0, 7.0, -1e3):
        z = random_aspects(cohort, 3, 4, 0, fill).requires_grad_()
        out = route(Edges(cohort, 3), z, 3, through)
        assert torch.isfinite(out).all()
        (out[:, real] * random_aspects(cohort, 3, 4, 1)[:, real]).sum().backward()
        assert not z.grad[:, ~real].any()
        found.append((out.detach()[:, real], z.grad[:, real]))
    for out, grad in found[1:]:
        assert torch.equal(out, found[0][0])
        assert torch.equal(grad, found[0][1])


@pytest.mark.parametrize("through", [False, True])
def test_a_zero_vector_gives_finite_gradients(through: bool) -> None:
    cohort = lay(hard_clients(), "compact")
    z = random_aspects(cohort, 2, 4, 0)
    z[:, ::3] = 0.0
    z[1, 5] = 0.0
    z.requires_grad_()
    out = route(Edges(cohort, 2), z, 3, through)
    out.square().sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(z.grad).all()
    everywhere = torch.zeros_like(z, requires_grad=True)
    out = route(Edges(cohort, 2), everywhere, 3, through)
    out.sum().backward()
    assert not out.any()
    assert torch.isfinite(everywhere.grad).all()


def test_without_gradients_nothing_is_recorded() -> None:
    cohort = lay(connected_clients())
    z = random_aspects(cohort, 2, 3, 0).requires_grad_()
    with torch.no_grad():
        out = route(Edges(cohort, 2), z, 2, through=True)
    assert not out.requires_grad
    assert torch.equal(out, route(Edges(cohort, 2), z, 2, through=True).detach())


@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 1e5]))
def test_unit_has_length_one_and_keeps_the_direction(seed: int, scale: float) -> None:
    z = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(seed)) * scale
    assert_near(unit(z), torch.nn.functional.normalize(z.double(), dim=-1), 1e-5)
    assert not unit(torch.zeros(2, 3)).any()


@pytest.mark.parametrize("masked", [False, True])
def test_unit_leaky_is_unit_of_a_leaky_relu_whatever_the_length_before(masked: bool) -> None:
    """With gradients; a vector that is dropped as a whole, and one that is zero."""
    stream = torch.Generator().manual_seed(0)
    mask = (torch.rand(3, 6, 5, generator=stream) < 0.6).double() / 0.6 if masked else None
    if mask is not None:
        mask[0, 0] = 0.0
    found = []
    for fused in (True, False):
        s = torch.randn(3, 6, 5, generator=stream.manual_seed(1), dtype=torch.float64)
        s[1, 1] = 0.0
        s.requires_grad_()
        if fused:
            out = unit_leaky(s, mask)
        else:
            out = torch.nn.functional.leaky_relu(unit(s))
            out = unit(out if mask is None else out * mask)
        slope = torch.autograd.grad((out * torch.randn(out.shape, generator=stream.manual_seed(2))).sum(), s)[0]
        found.append((out.detach(), slope))
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, atol=1e-12)
