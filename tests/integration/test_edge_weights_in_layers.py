"""Whatever reads edges uses their weights: each operator and layer against its formula in NumPy, or PyTorch Geometric's."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.graphs import operators
from fedquilt.nn import layers
from fedquilt.nn.decoder import Pairs, reconstruction
from fedquilt.nn.edges import Edges
from fedquilt.nn.filters import FilterNet, distance_scales, side_by_side
from fedquilt.nn.routing import route
from fedquilt.nn.spectral import client_basis, normalised
from fedquilt.nn.structure import Form, learn, learner_shapes
from fedquilt.tasks.node_classification import training_homophily
from support.clients import (
    PADDING,
    assert_near,
    dense_adjacency,
    dense_features,
    dense_operator,
    edge_index,
    gcn_operator,
    hard_clients,
    lay,
    mean_operator,
    numbers,
    relative_weights,
    with_training_nodes,
    with_weights,
)


@pytest.fixture(params=PADDING)
def cohort(request: pytest.FixtureRequest) -> Cohort:
    """Clients with weights from 0.1 to 10, one of them in the millions, and the last without any."""
    clients = with_weights([*hard_clients(), *with_training_nodes([5, 8])])
    graph = clients[-2].graph
    assert graph.edge_weights is not None
    clients[-2] = replace(clients[-2], graph=replace(graph, edge_weights=graph.edge_weights * np.float32(1e6)))
    clients[-1] = replace(clients[-1], graph=replace(clients[-1].graph, edge_weights=None))
    return lay([replace(client, id=m) for m, client in enumerate(clients)], request.param)


def apart(cohort: Cohort, rows: Tensor) -> list[np.ndarray]:
    return [part.double().numpy() for part in cohort.parts_of(rows)]


def test_the_operators_of_a_cohort(cohort: Cohort) -> None:
    x = cohort.rows_of([numbers(m, n, 3) for m, n in enumerate(cohort.sizes)], 0.0)
    of_sums = lambda client: dense_adjacency(client) + np.eye(client.graph.nodes)  # noqa: E731
    for operator, by_hand in ((cohort.gcn, gcn_operator), (cohort.mean, mean_operator), (cohort.sums, of_sums)):
        for client, mine, given in zip(cohort.members, apart(cohort, operator @ x), apart(cohort, x), strict=True):
            assert np.allclose(mine, by_hand(client) @ given, atol=1e-5)
    for client in cohort.members:
        assert np.allclose(client.gcn.toarray(), gcn_operator(client), atol=1e-6)
        assert np.allclose(client.mean.toarray(), mean_operator(client), atol=1e-6)
        assert np.allclose(normalised(client).toarray(), dense_operator(client), atol=1e-6)
        assert np.allclose(side_by_side([client]).toarray(), dense_operator(client), atol=1e-6)


def test_training_rows_are_rows_of_the_weighted_operators(cohort: Cohort) -> None:
    rows, h = cohort.training, numbers(1, cohort.rows, 4)
    for mine, whole in ((rows.gcn, cohort.gcn), (rows.mean, cohort.mean), (rows.sums, cohort.sums)):
        assert_near((mine @ h)[rows.real], (whole @ h)[cohort.train])


def test_gcn_is_pygs_with_weights_over_their_mean(cohort: Cohort) -> None:
    h, weight, bias = numbers(0, cohort.rows, 4), numbers(1, cohort.clients, 4, 3), numbers(2, cohort.clients, 3)
    ours = cohort.parts_of(layers.gcn(cohort, h, weight, bias))
    for m, (client, mine, given) in enumerate(zip(cohort.members, ours, cohort.parts_of(h), strict=True)):
        conv = GCNConv(4, 3)
        conv.load_state_dict({"lin.weight": weight[m].T, "bias": bias[m]})
        strength = torch.from_numpy(relative_weights(client)).float().repeat(2)
        assert_near(mine, conv(given, edge_index(client), strength).detach())


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_is_shared_out_by_weights(cohort: Cohort, heads: int) -> None:
    h, out, clients = numbers(0, cohort.rows, 4), 3, cohort.clients
    weight, bias = numbers(1, clients, 4, heads * out), numbers(4, clients, heads * out)
    source, target = numbers(2, clients, heads, out), numbers(3, clients, heads, out)
    ours = apart(cohort, layers.gat(cohort, h, weight, source, target, bias))
    for m, (client, mine, given) in enumerate(zip(cohort.members, ours, apart(cohort, h), strict=True)):
        a = dense_adjacency(client) + np.eye(client.graph.nodes)
        z = (given @ weight[m].double().numpy()).reshape(-1, heads, out)
        for head in range(heads):
            left, right = z[:, head] @ source[m, head].double().numpy(), z[:, head] @ target[m, head].double().numpy()
            score = left[None, :] + right[:, None]
            share = a * np.exp(np.where(score > 0, score, layers.SLOPE * score))
            expected = share / share.sum(1, keepdims=True) @ z[:, head]
            part = slice(head * out, head * out + out)
            assert np.allclose(mine[:, part], expected + bias[m, part].double().numpy(), atol=1e-4)


@pytest.mark.parametrize("kind", ["monomial", "chebyshev", "bernstein", "unifilter"])
def test_spectral_signals(cohort: Cohort, kind: str) -> None:
    order = 3
    for client in cohort.members:
        a, x = dense_operator(client), dense_features(client).astype(np.float64)
        found, eye = client_basis(client, kind, order, 1.0), np.eye(len(a))  # type: ignore[arg-type]
        for k in range(order + 1):
            if kind in ("monomial", "unifilter"):  # with mix=1 UniFilter's are powers
                expected = np.linalg.matrix_power(a, k) @ x
            elif kind == "bernstein":
                high, low = np.linalg.matrix_power(eye + a, order - k), np.linalg.matrix_power(eye - a, k)
                expected = math.comb(order, k) / 2**order * high @ low @ x
            else:
                expected = [x, -a @ x, 2 * a @ a @ x - x, -4 * a @ a @ a @ x + 3 * a @ x][k]
            assert np.allclose(found[k], expected, atol=1e-5)


def test_homophily_counts_weights(cohort: Cohort) -> None:
    seen_any = False
    for client in cohort.members:
        known, y = client.split == 0, client.graph.y
        same = total = 0.0
        for (u, v), weight in zip(client.graph.edges.T, relative_weights(client), strict=True):
            if known[u] and known[v]:
                total += weight
                same += weight * (y[u] == y[v])
        seen_any |= total > 0
        assert training_homophily(client) == pytest.approx((same + 1) / (total + 2), rel=1e-6)
    assert seen_any


@pytest.mark.parametrize("basis", ["scaled", "monomial", "chebyshev"])
@pytest.mark.parametrize("hidden", [4, 8])  # narrower than the six features, and wider
def test_quilts_filters(cohort: Cohort, basis: str, hidden: int) -> None:
    order, groups, classes = 2, 2, 3
    net = FilterNet(cohort.features, hidden, classes, order, groups, 0, 0.0, basis)  # type: ignore[arg-type]
    weights = {name: numbers(n, cohort.clients, *shape) for n, (name, shape) in enumerate(net.shapes().items())}
    weights["filter"] = numbers(9, cohort.clients, groups, order + 1)
    ours = apart(cohort, net(cohort, weights).embedding)
    for m, (client, mine) in enumerate(zip(cohort.members, ours, strict=True)):
        a, x = dense_operator(client), dense_features(client).astype(np.float64)
        powers = [x, a @ x, (2 * a @ a @ x - x) if basis == "chebyshev" else a @ a @ x]
        scale = distance_scales(client, order) if basis == "scaled" else np.ones(order + 1)
        if basis == "scaled":
            norms = [np.linalg.norm(power) for power in powers]
            for k in range(order + 1):
                if norms[k] > 1e-6 * norms[0] > 0:
                    assert scale[k] == pytest.approx(norms[0] / norms[k], rel=1e-5)
        w, c = weights["hidden.weight"][m].double().numpy(), weights["filter"][m].double().numpy()
        for unit in range(hidden):
            group = unit * groups // hidden
            value = sum(c[group, k] * scale[k] * powers[k] @ w[:, unit] for k in range(order + 1))
            bias = float(weights["hidden.bias"][m, unit])
            assert np.allclose(mine[:, unit], value + bias, atol=1e-4)


@pytest.mark.parametrize("through", [False, True])
def test_routing_sums_by_weights(cohort: Cohort, through: bool) -> None:
    factors, width, iterations = 2, 3, 3
    z = numbers(0, cohort.rows, factors, width).transpose(0, 1).contiguous()
    ours = route(Edges(cohort, factors), z, iterations, through)
    for m, client in enumerate(cohort.members):
        rows = slice(int(cohort.start[m]), int(cohort.start[m]) + cohort.sizes[m])
        own = z[:, rows].double().numpy()
        own /= np.linalg.norm(own, axis=2, keepdims=True)
        a, c = dense_adjacency(client), own
        for _ in range(iterations):
            p = np.exp(np.einsum("kud,kvd->kuv", c, own))
            p /= p.sum(0, keepdims=True)
            c = own + np.einsum("uv,kuv,kvd->kud", a, p, own)
            c /= np.linalg.norm(c, axis=2, keepdims=True)
        assert np.allclose(ours[:, rows].double().numpy(), c, atol=1e-4)


def test_reconstruction_counts_weights(cohort: Cohort) -> None:
    z, pairs, draws = numbers(0, cohort.rows, 3), Pairs(cohort), Draws(client_keys(0, cohort), 0)
    others = pairs.others(draws, 5)
    total, at = 0.0, 0
    for m, client in enumerate(cohort.members):
        logs = []
        weights = relative_weights(client)
        for number in np.lexsort(client.graph.edges[::-1]):
            u, v = client.graph.edges[:, number] + cohort.start[m]
            other = float(z[others.source[at].long()] @ z[others.target[at].long()])
            logs.append(weights[number] * math.log1p(math.exp(-float(z[u] @ z[v]))) + math.log1p(math.exp(other)))
            at += 1
        total += 0.5 * float(np.mean(logs)) if logs else 0.0
    assert float(reconstruction(pairs, z, draws, 5)) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("kind", ["gat", "gaug"])
def test_structure_learners_that_read_given_edges(cohort: Cohort, kind: str) -> None:
    shapes, z = learner_shapes(kind, cohort.features, 4, 2), numbers(5, cohort.rows, 2)  # type: ignore[arg-type]
    weights = {name: numbers(n, cohort.clients, *shape) for n, (name, shape) in enumerate(shapes.items())}
    latent = learn(kind, cohort, weights, Form(k=3), None)  # type: ignore[arg-type]
    ours = apart(cohort, latent.propagate(cohort, z))
    for m, (client, mine, given) in enumerate(zip(cohort.members, ours, apart(cohort, z), strict=True)):
        w = {name: tensor[m].double().numpy() for name, tensor in weights.items()}
        h = gcn_operator(client) @ dense_features(client).astype(np.float64) @ w["weight"] + w["bias"]
        if kind == "gat":
            score = (h @ w["source"]) + (h @ w["target"]).T  # at u of v
            share = np.exp(np.where(score > 0, score, 0.2 * score)) * (dense_adjacency(client) + np.eye(len(h)))
            expected = share / share.sum(1, keepdims=True) @ given
        else:
            k, score = min(3, len(h)), h @ h.T
            chosen = np.argsort(-score, axis=1, kind="stable")[:, :k]
            share = np.zeros_like(score)
            np.put_along_axis(share, chosen, 1 / (1 + np.exp(-np.take_along_axis(score, chosen, 1))), 1)
            learned = share / share.sum(1, keepdims=True) @ given
            expected = 0.5 * learned + 0.5 * mean_operator(client) @ given
        assert np.allclose(mine, expected, atol=1e-4)


def test_weights_of_one_give_the_same_bits() -> None:
    edges = np.stack(np.triu_indices(40, k=1))[:, np.random.default_rng(0).random(780) < 0.2]
    ones = np.ones(edges.shape[1], dtype=np.float32)
    for plain, weighted in (
        (operators.adjacency(edges, 40), operators.adjacency(edges, 40, ones)),
        (operators.gcn(edges, 40, np.arange(40)), operators.gcn(edges, 40, np.arange(40), ones)),
        (operators.neighbour_mean(edges, 40), operators.neighbour_mean(edges, 40, ones)),
        (operators.symmetric_normalised(edges, 40), operators.symmetric_normalised(edges, 40, ones)),
    ):
        assert plain.data.dtype == weighted.data.dtype
        assert np.array_equal(plain.data, weighted.data)
        assert np.array_equal(plain.indices, weighted.indices)


def test_extreme_weights_stay_finite() -> None:
    clients = with_weights(with_training_nodes([5, 8]), 1e-15, 1e15)
    cohort = Cohort(clients)
    for operator in (cohort.gcn, cohort.mean):
        values = operator.forward.values()
        assert values.isfinite().all()
        assert float(values.max()) <= 1.0 + 1e-6
    assert cohort.edge_weights is not None
    assert cohort.edge_weights.log().isfinite().all()
    for client in clients:
        assert np.isfinite(normalised(client).data).all()


def test_equal_weights_are_no_weights() -> None:
    """0.1 is no number of base two; a mean of many must still be 0.1."""
    (client,) = with_training_nodes([5])
    graph = replace(client.graph, edge_weights=np.full(client.graph.edges.shape[1], 0.1, dtype=np.float32))
    weights = Client(0, graph, client.split).edge_weights
    assert weights is not None
    assert (weights == 1.0).all()
