"""Polynomial bases against dense matrices, and learned filters over them against sums client by client."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.linalg import matrix_power
from numpy.polynomial import chebyshev
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TRAIN
from fedquilt.nn.spectral import KINDS, Bases, Basis, as_torch, client_basis, normalised
from fedquilt.nn.spectral import rotated_basis as rotated_tensors
from fedquilt.tasks.node_classification import training_homophily
from support.clients import (
    PADDING,
    assert_near,
    client_lists,
    dense_features,
    dense_operator,
    hard_clients,
    lay,
    random_client,
    with_training_nodes,
)

seeds = st.integers(0, 2**31)
orders = st.integers(0, 6)


def rotated_basis(a: sp.csr_matrix, x: np.ndarray, order: int, h: float) -> list[np.ndarray]:
    return [signal.numpy() for signal in rotated_tensors(as_torch(a), torch.from_numpy(x), order, h)]


def monomial(a: np.ndarray, x: np.ndarray, order: int) -> list[np.ndarray]:
    return [matrix_power(a, k) @ x for k in range(order + 1)]


def chebyshevs(a: np.ndarray, x: np.ndarray, order: int) -> list[np.ndarray]:
    """T_k of the eigenvalues of L - I."""
    identity = np.eye(len(a))
    values, vectors = np.linalg.eigh((identity - a) - identity)
    return [vectors @ np.diag(chebyshev.chebval(values, [0.0] * k + [1.0])) @ vectors.T @ x for k in range(order + 1)]


def bernstein(a: np.ndarray, x: np.ndarray, order: int) -> list[np.ndarray]:
    identity = np.eye(len(a))
    laplacian = identity - a
    return [
        math.comb(order, k)
        / 2**order
        * matrix_power(2 * identity - laplacian, order - k)
        @ matrix_power(laplacian, k)
        @ x
        for k in range(order + 1)
    ]


FORMULAS: dict[str, Callable[[np.ndarray, np.ndarray, int], list[np.ndarray]]] = {
    "monomial": monomial,
    "chebyshev": chebyshevs,
    "bernstein": bernstein,
}


# -- the polynomials -------------------------------------------------------------------------------


def every_client(test: Callable[..., None]) -> Callable[..., None]:
    """`test(client, order)` for random clients and the hard ones."""
    for client in hard_clients():
        test = example(clients=[client], order=4)(test)
    return given(clients=client_lists(most=1), order=orders)(test)


@every_client
def test_the_operator(clients: list[Client], order: int) -> None:
    assert np.allclose(normalised(clients[0]).toarray(), dense_operator(clients[0]))


@pytest.mark.parametrize("kind", FORMULAS)
@every_client
def test_a_basis_equals_its_formula(kind: str, clients: list[Client], order: int) -> None:
    (client,) = clients
    x = dense_features(client).astype(np.float64)
    found = client_basis(client, kind, order, 0.5)
    assert found.dtype == np.float32
    assert found.shape == (order + 1, *x.shape)
    assert np.allclose(found, FORMULAS[kind](dense_operator(client), x, order), atol=1e-5)


@every_client
def test_bernstein_sums_to_the_features(clients: list[Client], order: int) -> None:
    assert np.allclose(client_basis(clients[0], "bernstein", order, 0.5).sum(0), dense_features(clients[0]), atol=1e-5)


@every_client
def test_unifilter_mixes_powers_and_rotated_vectors(clients: list[Client], order: int) -> None:
    (client,) = clients
    x, a = dense_features(client).astype(np.float64), dense_operator(client)
    rotated = rotated_basis(normalised(client), x, order, training_homophily(client))
    for mix in (0.0, 0.3, 1.0):
        expected = [mix * p + (1 - mix) * u for p, u in zip(monomial(a, x, order), rotated, strict=True)]
        assert np.allclose(client_basis(client, "unifilter", order, mix), expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_each_column_is_filtered_alone(kind: str) -> None:
    client = random_client(np.random.default_rng(0), 0, 12, features=4, edges=0.3, filled=1.0)
    whole = client_basis(client, kind, 5, 0.5)
    g = client.graph
    for f in range(4):
        alone = Client(0, Graph("one", g.edges, g.x[:, f : f + 1], g.y, g.classes), client.split)
        assert np.allclose(client_basis(alone, kind, 5, 0.5)[..., 0], whole[..., f], atol=1e-6)


# -- vectors at one angle --------------------------------------------------------------------------


def krylov_rank(a: np.ndarray, x: np.ndarray, order: int) -> int:
    return int(np.linalg.matrix_rank(np.stack([matrix_power(a, k) @ x for k in range(order + 1)])))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("h", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("seed", range(3))
def test_every_two_rotated_vectors_have_one_angle(seed: int, h: float, sparse: bool) -> None:
    client = random_client(np.random.default_rng(seed), 0, 40, edges=0.15, filled=0.3, sparse=sparse)
    order, x, a = 6, dense_features(client).astype(np.float64), normalised(client)
    basis = np.stack(rotated_basis(a, x, order, h))
    assert np.array_equal(basis[0], x)
    cosine = math.cos(math.pi / 2 * (1 - h))
    for f in range(x.shape[1]):
        assert krylov_rank(a.toarray(), x[:, f], order) == order + 1
        own = basis[:, :, f] / np.linalg.norm(x[:, f])
        assert np.allclose(own @ own.T, cosine + (1 - cosine) * np.eye(order + 1), atol=1e-7)


@pytest.mark.parametrize("h", [0.0, 0.5, 0.9])
def test_rotated_vectors_span_the_krylov_space(h: float) -> None:
    """u_k is made of X, A X, .., A^k X and needs the last of them."""
    client = random_client(np.random.default_rng(1), 0, 40, edges=0.15, filled=1.0)
    x, a = dense_features(client).astype(np.float64), normalised(client)
    basis = np.stack(rotated_basis(a, x, 5, h))
    for f in range(x.shape[1]):
        powers = np.stack([matrix_power(a.toarray(), k) @ x[:, f] for k in range(6)], axis=1)
        for k in range(1, 6):
            residual = [
                np.linalg.norm(basis[k, :, f] - span @ np.linalg.lstsq(span, basis[k, :, f], rcond=None)[0])
                for span in (powers[:, :k], powers[:, : k + 1])
            ]
            assert residual[0] > 1e-3
            assert residual[1] < 1e-8


@pytest.mark.parametrize("h", [0.0, 0.5, 0.9, 1.0])
def test_an_exhausted_krylov_space_stays_finite(h: float) -> None:
    """A pair, a triangle, a star, a path and single nodes have a few dimensions; ten are asked for."""
    shapes = {
        "one": (1, []),
        "two apart": (2, []),
        "pair": (2, [(0, 1)]),
        "triangle": (3, [(0, 1), (0, 2), (1, 2)]),
        "star": (5, [(0, i) for i in range(1, 5)]),
        "path": (4, [(0, 1), (1, 2), (2, 3)]),
        "pair and one": (3, [(0, 1)]),
    }
    rng = np.random.default_rng(0)
    for name, (nodes, pairs) in shapes.items():
        edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        x = np.concatenate([rng.standard_normal((nodes, 3)), np.ones((nodes, 1)), np.eye(nodes)[:, :1]], axis=1)
        graph = Graph(name, edges, x.astype(np.float32), np.zeros(nodes, dtype=np.int64), 1)
        client = Client(0, graph, np.zeros(nodes, dtype=np.int8))
        a = normalised(client)
        basis = np.stack(rotated_basis(a, x, 10, h))
        assert np.isfinite(basis).all(), name
        # No vector is longer than its column, and as long as there is room all are just as long.
        lengths = np.linalg.norm(basis, axis=1) / np.linalg.norm(x, axis=0)
        assert (lengths < 1 + 1e-6).all(), name
        for f in range(x.shape[1]):
            rank = krylov_rank(a.toarray(), x[:, f], 10)
            assert np.allclose(lengths[:rank, f], 1.0, atol=1e-6), name
        assert np.isfinite(client_basis(client, "unifilter", 10, 0.5)).all(), name


def test_a_rounding_error_is_not_a_new_direction() -> None:
    """A nearly complete graph of ten nodes: its space has ten dimensions at most, thirteen vectors are asked for."""
    client = random_client(np.random.default_rng(0), 0, 10, edges=0.9, filled=1.0)
    x = dense_features(client).astype(np.float64)
    lengths = np.linalg.norm(rotated_basis(normalised(client), x, 12, 0.5), axis=1) / np.linalg.norm(x, axis=0)
    assert (lengths < 1 + 1e-6).all()


def test_zero_columns_stay_zero_and_isolated_nodes_are_fine() -> None:
    rng = np.random.default_rng(0)
    client = random_client(rng, 0, 12, features=3, edges=0.4, filled=1.0)
    edges = client.graph.edges[:, (client.graph.edges < 9).all(0)]  # the last three nodes are on their own
    x = client.graph.x.copy()
    x[:, 1] = 0.0
    graph = Graph("isolated", edges, x, client.graph.y, 3)
    for kind in KINDS:
        basis = client_basis(Client(0, graph, client.split), kind, 6, 0.5)
        assert np.isfinite(basis).all()
        assert not basis[:, :, 1].any()
        assert basis[:, :, [0, 2]].any()
        if kind == "monomial":
            assert not basis[1:, 9:].any()


# -- homophily -------------------------------------------------------------------------------------


@every_client
def test_homophily_equals_a_loop(clients: list[Client], order: int) -> None:
    (client,) = clients
    known = set(np.flatnonzero((client.split == TRAIN) & (client.graph.y >= 0)).tolist())
    seen = [(u, v) for u, v in client.graph.edges.T.tolist() if u in known and v in known]
    same = sum(client.graph.y[u] == client.graph.y[v] for u, v in seen)
    assert training_homophily(client) == (same + 1) / (len(seen) + 2)
    assert 0 < training_homophily(client) < 1


@given(clients=client_lists(most=1), seed=seeds)
def test_homophily_and_bases_never_see_hidden_labels(clients: list[Client], seed: int) -> None:
    (client,) = clients
    g = client.graph
    y, hidden = g.y.copy(), np.flatnonzero(client.split != TRAIN)
    y[hidden] = np.random.default_rng(seed).integers(-1, g.classes, len(hidden))
    other = Client(client.id, Graph(g.name, g.edges, g.x, y, g.classes), client.split)
    assert training_homophily(other) == training_homophily(client)
    for kind in KINDS:
        assert np.array_equal(client_basis(other, kind, 3, 0.5), client_basis(client, kind, 3, 0.5))


def test_homophily_is_a_half_without_edges_between_training_nodes() -> None:
    client = random_client(np.random.default_rng(0), 0, 10, edges=0.5)
    assert training_homophily(Client(0, client.graph, np.ones_like(client.split))) == 0.5
    assert training_homophily(random_client(np.random.default_rng(0), 0, 10, edges=0.0)) == 0.5
    g = client.graph
    everyone = np.full_like(client.split, TRAIN)
    alike = Client(0, Graph("alike", g.edges, g.x, np.zeros_like(g.y), 3), everyone)
    assert training_homophily(alike) == (g.edges.shape[1] + 1) / (g.edges.shape[1] + 2)


# -- learned filters -------------------------------------------------------------------------------


def filtered(client: Client, order: int, nodes: np.ndarray | None) -> Tensor:
    """H_0 .. H_K of a client in double precision, on some of its nodes: [O, n, F]."""
    signals = torch.from_numpy(client_basis(client, "chebyshev", order, 0.5)).double()
    return signals if nodes is None else signals[:, nodes]


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients(), seed=0, order=3)
@settings(max_examples=15)
@given(clients=client_lists(), seed=seeds, order=orders)
def test_linear_equals_a_sum_client_by_client(
    rows: str, dropped: bool, clients: list[Client], seed: int, order: int
) -> None:
    """(sum_k w_k H_k * keep) W and its gradients by both, for every client with weights of its own."""
    cohort = lay(clients, rows)
    bases = Bases(cohort, "chebyshev", order, 0.5)
    stream = torch.Generator().manual_seed(seed)
    for basis, own in ((bases.everywhere, None), (bases.training, [client.training_nodes for client in clients])):
        coefficients = torch.randn(len(clients), order + 1, generator=stream).requires_grad_()
        weight = torch.randn(len(clients), cohort.features, 4, generator=stream).requires_grad_()
        keep = torch.rand(basis.rows.rows, cohort.features, generator=stream).round() * 2 if dropped else None
        out = basis.linear(coefficients, weight, keep)
        assert out.shape == (basis.rows.rows, 4)
        # What comes back at padding rows must not matter.
        pull = torch.randn(out.shape, generator=stream)
        found = torch.autograd.grad((out * pull).sum(), [coefficients, weight])
        for m, client in enumerate(clients):
            inputs = [tensor[m].detach().double().requires_grad_() for tensor in (coefficients, weight)]
            signal = torch.einsum("k,knf->nf", inputs[0], filtered(client, order, None if own is None else own[m]))
            expected = (signal if keep is None else signal * basis.rows.parts_of(keep)[m]) @ inputs[1]
            assert_near(basis.rows.parts_of(out.detach())[m], expected.detach())
            grads = torch.autograd.grad((expected * basis.rows.parts_of(pull)[m]).sum(), inputs)
            for one, two in zip(found, grads, strict=True):
                assert_near(one[m], two)
        real = torch.zeros(basis.rows.rows, dtype=torch.bool)
        for first, size in zip(basis.rows.start, basis.rows.sizes, strict=True):
            real[first : first + size] = True
        assert not out[~real].any()


def test_linear_gradcheck() -> None:
    cohort = lay([random_client(np.random.default_rng(0), m, n) for m, n in enumerate((3, 5))])
    stream = torch.Generator().manual_seed(0)
    features = [torch.tensor([0, 2]), torch.tensor([1])]
    signals = [
        torch.randn(4, n, len(f), dtype=torch.float64, generator=stream) for n, f in zip((3, 5), features, strict=True)
    ]
    basis = Basis(cohort, signals, features)
    coefficients = torch.randn(2, 4, dtype=torch.float64, generator=stream).requires_grad_()
    weight = torch.randn(2, 3, 2, dtype=torch.float64, generator=stream).requires_grad_()
    keep = torch.rand(cohort.rows, 3, dtype=torch.float64, generator=stream)
    assert torch.autograd.gradcheck(basis.linear, (coefficients, weight))
    assert torch.autograd.gradcheck(lambda c, w: basis.linear(c, w, keep), (coefficients, weight))
    # An expanded gradient comes back; features that a client does not have get none.
    _, grad = torch.autograd.grad(basis.linear(coefficients, weight).sum(), [coefficients, weight])
    assert not grad[0, 1].any()
    assert not grad[1, [0, 2]].any()
    assert grad[0, [0, 2]].all()


@pytest.mark.parametrize("rows", PADDING)
def test_only_features_that_occur_are_kept(rows: str) -> None:
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, n, filled=share) for m, (n, share) in enumerate(((9, 0.05), (12, 1.0), (5, 0.0)))]
    bases = Bases(lay(clients, rows), "unifilter", 3, 0.5)
    for m, client in enumerate(clients):
        occur = np.flatnonzero(dense_features(client).any(0))
        assert bases.everywhere.features[m].tolist() == bases.training.features[m].tolist() == occur.tolist()
        assert bases.everywhere.signals[m].shape == (4, client.graph.nodes * len(occur))
    assert 0 < len(bases.everywhere.features[0]) < 6
    assert bases.means.shape == (3, 4, 6)


@pytest.mark.parametrize("counts", [(5, 5, 5), (0, 4, 1), (0, 0, 0, 0, 12), (0, 0)])
@pytest.mark.parametrize("rows", PADDING)
def test_the_training_rows_are_those_of_all_rows(rows: str, counts: tuple[int, ...]) -> None:
    cohort = lay(with_training_nodes(counts), rows)
    bases = Bases(cohort, "unifilter", 3, 0.5)
    coefficients = torch.randn(len(counts), 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weight = torch.randn(len(counts), cohort.features, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    whole = bases.everywhere.linear(coefficients, weight)[cohort.train]
    part = bases.training.linear(coefficients, weight)[cohort.training.real]
    assert_near(part.detach(), whole.detach(), 1e-6)
    if sum(counts):
        pull = torch.randn(whole.shape, generator=torch.Generator().manual_seed(2))
        one, two = (torch.autograd.grad((out * pull).sum(), [coefficients, weight]) for out in (whole, part))
        for mine, theirs in zip(two, one, strict=True):
            assert_near(mine, theirs)


@pytest.mark.parametrize("rows", PADDING)
def test_cohorts_of_some_clients_share_the_signals(rows: str) -> None:
    cohort = lay(hard_clients(), rows)
    whole = Bases(cohort, "unifilter", 3, 0.5)
    some = Bases(cohort.take([4, 1]), "unifilter", 3, 0.5)
    for place, m in enumerate((4, 1)):
        for mine, theirs in ((some.everywhere, whole.everywhere), (some.training, whole.training)):
            assert mine.signals[place].data_ptr() == theirs.signals[m].data_ptr()
            assert torch.equal(mine.signals[place], theirs.signals[m])
        assert torch.equal(some.means[place], whole.means[m])
    # Another kind, order or mix is something else.
    for other in (("monomial", 3, 0.5), ("unifilter", 2, 0.5), ("unifilter", 3, 0.4)):
        assert Bases(cohort, *other).everywhere.signals[4].data_ptr() != whole.everywhere.signals[4].data_ptr()


@pytest.mark.parametrize("rows", PADDING)
def test_means_are_over_a_clients_own_nodes(rows: str) -> None:
    clients = hard_clients()
    bases = Bases(lay(clients, rows), "monomial", 3, 0.5)
    assert bases.means.dtype == torch.float32
    for mean, client in zip(bases.means, clients, strict=True):
        assert np.allclose(mean, client_basis(client, "monomial", 3, 0.5).mean(1), atol=1e-6)


def test_sparse_and_dense_features_give_the_same() -> None:
    dense = random_client(np.random.default_rng(0), 0, 12, filled=0.2)
    g = dense.graph
    sparse = Client(0, Graph(g.name, g.edges, sp.csr_matrix(g.x), g.y, g.classes), dense.split)
    for kind in KINDS:
        assert np.array_equal(client_basis(sparse, kind, 4, 0.5), client_basis(dense, kind, 4, 0.5))
