"""The diagonal sheaf Laplacian against its coboundary matrix, and diffusion against the Kronecker product."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.nn.sheaf import diffuse, normalised, restriction_maps, sheaf_laplacian
from support.clients import assert_near, doubles

seeds = st.integers(0, 2**31)
counts = st.integers(1, 6)
stalks = st.integers(1, 4)


def random_maps(seed: int, stalk: int, count: int) -> Tensor:
    """[d, N, N], zero for u = v as a node has no edge with itself."""
    return doubles(seed, stalk, count, count) * (1 - torch.eye(count))


def coboundary(maps: Tensor) -> np.ndarray:
    """B: a block row an edge u < v, with F_u in u's columns and -F_v in v's; [E d, N d], nodes before stalk dimensions."""
    d, n, _ = maps.shape
    pairs = list(itertools.combinations(range(n), 2))
    b = np.zeros((len(pairs) * d, n * d))
    for edge, (u, v) in enumerate(pairs):
        for k in range(d):
            b[edge * d + k, u * d + k] = maps[k, u, v]
            b[edge * d + k, v * d + k] = -maps[k, v, u]
    return b


def whole(laplacian: Tensor) -> np.ndarray:
    """d matrices [N, N] as one [N d, N d] in the order of `coboundary`'s columns."""
    d, n, _ = laplacian.shape
    out = np.zeros((n, d, n, d))
    for k in range(d):
        out[:, k, :, k] = laplacian[k].numpy()
    return out.reshape(n * d, n * d)


# -- the Laplacian ---------------------------------------------------------------------------------


@given(seed=seeds, count=counts, stalk=stalks)
def test_the_laplacian_is_the_coboundarys_square(seed: int, count: int, stalk: int) -> None:
    maps = random_maps(seed, stalk, count)
    found, b = whole(sheaf_laplacian(maps)), coboundary(maps)
    assert found == pytest.approx(b.T @ b, abs=1e-9)
    assert np.array_equal(found, found.T)
    assert np.linalg.eigvalsh(found).min() > -1e-9


@given(seed=seeds, count=counts, stalk=stalks)
def test_it_does_to_a_node_what_equation_three_says(seed: int, count: int, stalk: int) -> None:
    maps, x = random_maps(seed, stalk, count), doubles(seed + 1, count, stalk)
    for u in range(count):
        expected = sum(
            (maps[:, u, v] * (maps[:, u, v] * x[u] - maps[:, v, u] * x[v]) for v in range(count) if v != u),
            torch.zeros(stalk, dtype=torch.float64),
        )
        assert_near(torch.einsum("kv,vk->k", sheaf_laplacian(maps)[:, u], x), expected, 1e-9)


@given(seed=seeds, count=st.integers(2, 6), stalk=stalks)
def test_it_is_zero_on_global_sections_and_on_nothing_else(seed: int, count: int, stalk: int) -> None:
    """F_u x_u = F_v x_v = s_uv on every edge: choose x and s, and the maps follow. d of them, one a dimension."""
    x = doubles(seed, count, stalk).sign() * (0.3 + doubles(seed + 1, count, stalk).abs())
    shared = doubles(seed + 2, stalk, count, count)
    shared = (0.3 + (shared + shared.mT).abs()) * (1 - torch.eye(count))
    maps = shared / x.T.unsqueeze(2)
    laplacian = sheaf_laplacian(maps)
    applied = torch.einsum("kuv,vk->uk", laplacian, x)
    assert float(applied.abs().max()) < 1e-9 * max(1.0, float(laplacian.abs().max()))
    away = x.clone()
    away[0, 0] += 1.0
    assert float(torch.einsum("kuv,vk->uk", laplacian, away).abs().max()) > 1e-3
    values = np.linalg.eigvalsh(whole(laplacian))
    assert (values < 1e-9 * values.max()).sum() == stalk


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("stalk", [1, 3])
def test_identities_give_the_ordinary_laplacian_for_each_dimension(count: int, stalk: int) -> None:
    maps = (1 - torch.eye(count)).expand(stalk, -1, -1)
    ordinary = count * torch.eye(count) - torch.ones(count, count)
    assert torch.equal(sheaf_laplacian(maps), ordinary.expand(stalk, -1, -1))
    if count > 1:
        assert_near(normalised(sheaf_laplacian(maps)), (ordinary / (count - 1)).expand(stalk, -1, -1), 1e-6)


# -- normalised ------------------------------------------------------------------------------------


@given(seed=seeds, count=st.integers(2, 6), stalk=stalks)
def test_normalised_equals_equation_four(seed: int, count: int, stalk: int) -> None:
    maps = random_maps(seed, stalk, count)
    b = coboundary(maps)
    laplacian = b.T @ b
    half = np.diag(np.diag(laplacian) ** -0.5)
    found = whole(normalised(sheaf_laplacian(maps)))
    assert found == pytest.approx(half @ laplacian @ half, abs=1e-9)
    values = np.linalg.eigvalsh(found)
    assert values.min() > -1e-9
    assert values.max() < 2 + 1e-9
    assert np.diag(found) == pytest.approx(np.ones(count * stalk))


@pytest.mark.parametrize("flipped", [False, True])
def test_both_ends_of_the_spectrum_are_reached(flipped: bool) -> None:
    """Two nodes: what agrees is at 0; where one map is turned round, what agrees is at 2."""
    maps = torch.tensor([[[0.0, 1.0], [-1.0 if flipped else 1.0, 0.0]]])
    together = torch.ones(2)
    assert_near(normalised(sheaf_laplacian(maps))[0] @ together, (2.0 if flipped else 0.0) * together, 1e-6)


def test_a_node_whose_maps_are_zero_takes_no_part_and_breaks_no_gradient() -> None:
    maps = random_maps(0, 2, 4)
    maps[0, 1] = 0.0
    found = normalised(sheaf_laplacian(maps))
    assert not found[0, 1].any()
    assert not found[0, :, 1].any()
    assert found[1, 1].all()
    others = found[0][[0, 2, 3]][:, [0, 2, 3]]
    assert others.all()
    assert_near(others.diagonal(), torch.ones(3), 1e-9)
    for broken in (maps, torch.zeros_like(maps), 1e-9 * maps):
        leaf = broken.float().requires_grad_()
        out = normalised(sheaf_laplacian(leaf))
        out.square().sum().backward()
        assert bool(torch.isfinite(out).all())
        assert bool(torch.isfinite(leaf.grad).all())


def test_gradients_pass_gradcheck() -> None:
    off = 1 - torch.eye(4)
    maps = doubles(0, 2, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: normalised(sheaf_laplacian(m * off)), maps)


# -- maps and diffusion ----------------------------------------------------------------------------


@given(seed=seeds, count=counts, stalk=stalks, width=st.integers(1, 6))
def test_maps_are_tanh_of_the_concatenated_pair(seed: int, count: int, stalk: int, width: int) -> None:
    x, weight = doubles(seed, count, width), doubles(seed + 1, stalk, 2 * width)
    maps = restriction_maps(x, weight[:, :width].T, weight[:, width:].T)
    assert maps.shape == (stalk, count, count)
    for u in range(count):
        assert not maps[:, u, u].any()
        for v in range(count):
            if v != u:
                assert_near(maps[:, u, v], torch.tanh(weight @ torch.cat([x[u], x[v]])), 1e-9)


def test_equal_nodes_agree_with_each_other() -> None:
    """Their maps into the edge between them are one and the same, so nothing flows where they hold the same."""
    x = doubles(0, 1, 5).expand(3, -1)
    maps = restriction_maps(x, doubles(1, 5, 2), doubles(2, 5, 2))
    laplacian = normalised(sheaf_laplacian(maps))
    held = doubles(3, 1, 2, 4).expand(3, -1, -1)
    assert_near(diffuse(held, laplacian, torch.eye(2).double(), torch.eye(4).double()), held, 1e-9)


@given(seed=seeds, count=counts, stalk=stalks, channels=st.integers(1, 4))
def test_a_step_equals_the_kronecker_formula(seed: int, count: int, stalk: int, channels: int) -> None:
    x, maps = doubles(seed, count, stalk, channels), random_maps(seed + 1, stalk, count)
    one, two = doubles(seed + 2, stalk, stalk), doubles(seed + 3, channels, channels)
    laplacian = normalised(sheaf_laplacian(maps))
    stacked = x.reshape(count * stalk, channels).numpy()
    flow = whole(laplacian) @ np.kron(np.eye(count), one.numpy()) @ stacked @ two.numpy()
    expected = stacked - np.where(flow > 0, flow, np.expm1(np.minimum(flow, 0)))
    found = diffuse(x, laplacian, one, two)
    assert found.shape == x.shape
    assert_near(found.reshape(count * stalk, channels), torch.from_numpy(expected), 1e-9)


def test_a_node_alone_stays_as_it_is() -> None:
    x = doubles(0, 1, 3, 2)
    laplacian = normalised(sheaf_laplacian(restriction_maps(doubles(1, 1, 4), doubles(2, 4, 3), doubles(3, 4, 3))))
    assert torch.equal(diffuse(x, laplacian, doubles(4, 3, 3), doubles(5, 2, 2)), x)
