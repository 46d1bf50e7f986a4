"""Divergences between Gaussians against sampling, integration and torch.distributions; moments against samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from fedquilt.nn.gaussians import (
    class_separation,
    jensen_shannon,
    kl_diagonal,
    kl_full,
    kl_mixture,
    matched,
    quadrature,
)
from support.clients import assert_near, doubles

seeds = st.integers(0, 2**31)
widths = st.integers(1, 6)


def covariances(seed: int, *shape: int) -> Tensor:
    """[..., d, d] positive definite."""
    root = doubles(seed, *shape, shape[-1])
    return root @ root.mT / shape[-1] + 0.2 * torch.eye(shape[-1], dtype=torch.float64)


def sampled(mean: Tensor, covariance: Tensor, count: int, seed: int) -> Tensor:
    return mean + doubles(seed, count, len(mean)) @ torch.linalg.cholesky(covariance).mT


# -- Kullback-Leibler ------------------------------------------------------------------------------


@given(seed=seeds, shape=st.lists(st.integers(1, 4), min_size=1, max_size=3), variance=st.floats(0.05, 20.0))
def test_kl_diagonal_equals_torchs(seed: int, shape: list[int], variance: float) -> None:
    mean, logvar, other = doubles(seed, 3, *shape)
    found = kl_diagonal(mean, logvar, other, variance)
    assert_near(
        found, kl_divergence(Normal(mean, (0.5 * logvar).exp()), Normal(other, torch.tensor(variance).sqrt())), 1e-6
    )
    assert (found >= -1e-12).all()


def test_kl_diagonal_of_equals_is_zero_and_has_gradients() -> None:
    mean = doubles(0, 5, 3).requires_grad_()
    logvar = torch.full((5, 3), math.log(0.7), dtype=torch.float64, requires_grad=True)
    kl = kl_diagonal(mean, logvar, mean.detach(), 0.7)
    assert float(kl.detach().abs().max()) < 1e-12
    kl.sum().backward()
    assert float(mean.grad.abs().max()) < 1e-12
    assert float(logvar.grad.abs().max()) < 1e-12
    args = tuple(doubles(i, 4, 2).requires_grad_() for i in range(3))
    assert torch.autograd.gradcheck(lambda m, s, o: kl_diagonal(m, s, o, 1.7), args)


def test_kl_diagonal_equals_a_sampled_estimate() -> None:
    mean, logvar, other, variance = doubles(0, 3), doubles(1, 3), doubles(2, 3), 1.5
    x = mean + doubles(3, 200_000, 3) * (0.5 * logvar).exp()
    ratio = Normal(mean, (0.5 * logvar).exp()).log_prob(x) - Normal(other, math.sqrt(variance)).log_prob(x)
    error = ratio.std(0) / math.sqrt(len(x))
    assert ((ratio.mean(0) - kl_diagonal(mean, logvar, other, variance)).abs() < 4 * error).all()


@given(seed=seeds, batch=st.lists(st.integers(1, 3), max_size=2), width=widths)
def test_kl_full_equals_torchs(seed: int, batch: list[int], width: int) -> None:
    mean, other = doubles(seed, 2, *batch, width)
    one, two = covariances(seed + 1, *batch, width), covariances(seed + 2, *batch, width)
    found = kl_full(mean, one, other, two)
    assert found.shape == tuple(batch)
    assert_near(found, kl_divergence(MultivariateNormal(mean, one), MultivariateNormal(other, two)), 1e-6)
    assert (found >= -1e-9).all()
    assert float(kl_full(mean, one, mean, one).abs().max()) < 1e-9


def test_kl_full_of_everyone_to_everyone() -> None:
    """Batches broadcast: [n, 1] against [1, n]."""
    mean, covariance = doubles(0, 4, 3), covariances(1, 4, 3)
    found = kl_full(mean.unsqueeze(1), covariance.unsqueeze(1), mean.unsqueeze(0), covariance.unsqueeze(0))
    assert found.shape == (4, 4)
    for i in range(4):
        for j in range(4):
            assert float(found[i, j]) == pytest.approx(
                float(kl_full(mean[i], covariance[i], mean[j], covariance[j])), abs=1e-9
            )


def test_kl_full_equals_a_sampled_estimate() -> None:
    mean, other = doubles(0, 2, 3)
    one, two = covariances(1, 3), covariances(2, 3)
    x = sampled(mean, one, 200_000, 3)
    ratio = MultivariateNormal(mean, one).log_prob(x) - MultivariateNormal(other, two).log_prob(x)
    error = float(ratio.std()) / math.sqrt(len(x))
    assert abs(float(ratio.mean()) - float(kl_full(mean, one, other, two))) < 4 * error


@given(seed=seeds, width=widths, variance=st.floats(0.1, 10.0))
def test_kl_full_of_diagonal_covariances_is_the_sum_over_dimensions(seed: int, width: int, variance: float) -> None:
    mean, logvar, other = doubles(seed, 3, 4, width)
    spherical = variance * torch.eye(width, dtype=torch.float64).expand(4, -1, -1)
    found = kl_full(mean, torch.diag_embed(logvar.exp()), other, spherical)
    assert_near(found, kl_diagonal(mean, logvar, other, variance).sum(-1), 1e-9)


# -- Jensen-Shannon --------------------------------------------------------------------------------


def integrated(one: tuple[float, float], two: tuple[float, float]) -> float:
    """JS in bits of two Gaussians (mean, deviation) on the line, on a fine grid."""
    low = min(m - 12 * s for m, s in (one, two))
    high = max(m + 12 * s for m, s in (one, two))
    x = np.linspace(low, high, 200_001)
    p, q = (stats.norm.pdf(x, *each) + 1e-300 for each in (one, two))
    each = 0.5 * (p * np.log2(2 * p / (p + q)) + q * np.log2(2 * q / (p + q)))
    return float(np.trapezoid(each, x))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((0.0, 1.0), (0.5, 1.0)),
        ((0.0, 1.0), (2.0, 1.0)),
        ((-1.0, 0.5), (1.0, 2.0)),
        ((0.0, 0.2), (0.0, 3.0)),
        ((3.0, 1.0), (3.0, 1.3)),
        ((0.0, 1.0), (8.0, 0.7)),
    ],
)
def test_jensen_shannon_on_the_line_equals_the_integral(one: tuple[float, float], two: tuple[float, float]) -> None:
    mean = torch.tensor([[[one[0]], [two[0]]]])
    logvar = torch.tensor([[[one[1]], [two[1]]]]).square().log()
    found = jensen_shannon(mean, logvar, doubles(0, 200_000, 1))
    assert float(found[0, 0, 1]) == pytest.approx(integrated(one, two), abs=0.005)


def test_jensen_shannon_equals_a_sampled_estimate_in_several_dimensions() -> None:
    mean, logvar = doubles(0, 2, 3, 4), 0.5 * doubles(1, 2, 3, 4)
    found = jensen_shannon(mean, logvar, doubles(2, 100_000, 4))
    assert found.shape == (2, 3, 3)
    for k in range(2):
        own = [Independent(Normal(mean[k, i], (0.5 * logvar[k, i]).exp()), 1) for i in range(3)]
        for i, j in ((0, 1), (0, 2), (1, 2)):
            halves = []
            for p, q, seed in ((own[i], own[j], 3), (own[j], own[i], 4)):
                x = p.mean + p.stddev * doubles(seed, 100_000, 4)
                mixed = torch.logaddexp(p.log_prob(x), q.log_prob(x)) - math.log(2.0)
                halves.append(float((p.log_prob(x) - mixed).mean()) / math.log(2.0))
            assert float(found[k, i, j]) == pytest.approx(np.mean(halves), abs=0.01)


@given(seed=seeds, factors=st.integers(1, 3), count=st.integers(1, 5), width=widths, spread=st.floats(0.0, 20.0))
def test_jensen_shannon_is_a_distance(seed: int, factors: int, count: int, width: int, spread: float) -> None:
    mean, logvar = spread * doubles(seed, factors, count, width), doubles(seed + 1, factors, count, width)
    found = jensen_shannon(mean, logvar, doubles(seed + 2, 50, width))
    assert found.shape == (factors, count, count)
    assert found.dtype == torch.float32
    assert torch.equal(found, found.mT)
    assert float(found.diagonal(dim1=1, dim2=2).abs().max()) < 1e-6
    assert (found >= 0).all()
    assert (found <= 1).all()


def test_jensen_shannon_far_apart_close_together_and_equal() -> None:
    noise = doubles(0, 500, 3)
    mean = torch.tensor([[0.0] * 3, [50.0] * 3, [0.01] * 3, [0.0] * 3]).unsqueeze(0)
    found = jensen_shannon(mean, torch.zeros(1, 4, 3), noise)[0]
    assert float(found[0, 1]) > 0.9999
    assert float(found[0, 2]) < 0.001
    assert float(found[0, 3]) < 1e-6
    farther = jensen_shannon(torch.tensor([[[0.0], [0.5], [1.0], [2.0], [4.0]]]), torch.zeros(1, 5, 1), noise[:, :1])[0]
    assert (farther[0].diff() > 0).all()


@given(seed=seeds, shift=st.floats(-100.0, 100.0))
def test_jensen_shannon_ignores_a_common_shift(seed: int, shift: float) -> None:
    mean, logvar, noise = doubles(seed, 2, 4, 3), doubles(seed + 1, 2, 4, 3), doubles(seed + 2, 100, 3)
    moved = jensen_shannon(mean + shift, logvar, noise)
    assert torch.allclose(moved, jensen_shannon(mean, logvar, noise), atol=1e-6)


def test_jensen_shannon_of_float32_is_that_of_float64() -> None:
    mean, logvar, noise = doubles(0, 2, 4, 3).float(), doubles(1, 2, 4, 3).float(), doubles(2, 100, 3).float()
    found = jensen_shannon(mean, logvar, noise)
    assert_near(found, jensen_shannon(mean.double(), logvar.double(), noise.double()), 1e-5)


@pytest.mark.parametrize("nodes", [1, 2, 5, 12])
def test_quadrature_is_exact_for_polynomials(nodes: int) -> None:
    """E[x^p] of the standard normal, (p - 1)!! or zero, up to p = 2 nodes - 1."""
    where, weight = quadrature(nodes, torch.device("cpu"))
    assert where.shape == (nodes, 1)
    assert weight.shape == (nodes,)
    assert float(weight.sum()) == pytest.approx(1.0)
    for power in range(2 * nodes):
        expected = 0.0 if power % 2 else float(math.prod(range(power - 1, 0, -2)))
        size = float((weight * where[:, 0].abs() ** power).sum())
        assert float((weight * where[:, 0] ** power).sum()) == pytest.approx(expected, rel=1e-9, abs=1e-12 * size)


PAIRS = [
    ((0.0, 1.0), (0.1, 1.0)),
    ((0.0, 1.0), (0.5, 1.0)),
    ((0.0, 1.0), (2.0, 1.0)),
    ((3.0, 1.0), (3.0, 1.3)),
    ((-1.0, 0.5), (0.0, 0.7)),
    ((0.2, 0.5), (-0.3, 0.5)),
    ((0.0, 1.0), (8.0, 0.7)),
    ((5.0, 0.3), (5.0, 0.3)),
]


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_jensen_shannon_by_quadrature_equals_the_integral(one: tuple[float, float], two: tuple[float, float]) -> None:
    mean = torch.tensor([[[one[0]], [two[0]]]])
    logvar = torch.tensor([[[one[1]], [two[1]]]]).square().log()
    nodes, weight = quadrature(12, torch.device("cpu"))
    found = jensen_shannon(mean, logvar, nodes, weight)[0]
    assert float(found[0, 1]) == pytest.approx(integrated(one, two), abs=2e-3)
    assert torch.equal(found, found.T)
    assert float(found.diagonal().abs().max()) < 1e-6


def test_equal_weights_are_the_default() -> None:
    mean, logvar, noise = doubles(0, 2, 4, 3), doubles(1, 2, 4, 3), doubles(2, 50, 3)
    even = torch.full((50,), 1 / 50, dtype=torch.float64)
    assert torch.equal(jensen_shannon(mean, logvar, noise), jensen_shannon(mean, logvar, noise, even))
    # A draw of weight two is the draw twice.
    weight = torch.cat([torch.full((10,), 2.0), torch.ones(40)]).double() / 60
    twice = torch.cat([noise[:10], noise])
    assert_near(jensen_shannon(mean, logvar, noise, weight), jensen_shannon(mean, logvar, twice), 1e-6)


# -- the one that stands for several ---------------------------------------------------------------


@given(seed=seeds, batch=st.lists(st.integers(1, 3), max_size=2), width=widths, count=st.integers(1, 5))
def test_matched_equals_equation_six(seed: int, batch: list[int], width: int, count: int) -> None:
    """sum_i w_i (S_i + m_i m_i^T) - m m^T."""
    mean, covariance = doubles(seed, *batch, count, width), covariances(seed + 1, *batch, count, width)
    weight = torch.rand(*batch, 3, count, generator=torch.Generator().manual_seed(seed)).double() + 0.01
    centre, spread = matched(mean, covariance, weight)
    share = weight / weight.sum(-1, keepdim=True)
    assert centre.shape == (*batch, 3, width)
    assert spread.shape == (*batch, 3, width, width)
    second = torch.einsum("...kn,...nij->...kij", share, covariance + mean.unsqueeze(-1) * mean.unsqueeze(-2))
    assert_near(centre, torch.einsum("...kn,...ni->...ki", share, mean), 1e-9)
    assert_near(spread, second - centre.unsqueeze(-1) * centre.unsqueeze(-2), 1e-9)
    assert (torch.linalg.eigvalsh(spread) > 0).all()


def test_matched_equals_the_moments_of_draws_from_the_mixture() -> None:
    mean, covariance = 2 * doubles(0, 3, 2), covariances(1, 3, 2)
    weight = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64)
    centre, spread = matched(mean, covariance, weight)
    draws = torch.cat([sampled(mean[i], covariance[i], 100_000 * int(weight[0, i]), i + 2) for i in range(3)])
    assert_near(draws.mean(0), centre[0], 0.01)
    assert_near(torch.cov(draws.T), spread[0], 0.01)


def test_matched_of_one_of_equals_and_of_nothing() -> None:
    mean, covariance = doubles(0, 3, 2), covariances(1, 3, 2)
    weight = torch.tensor([[0.0, 5.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    centre, spread = matched(mean, covariance, weight)
    assert_near(centre[0], mean[1], 1e-12)
    assert_near(spread[0], covariance[1], 1e-12)
    assert not centre[1].any()
    assert not spread[1].any()
    same = matched(mean[:1].expand(3, -1), covariance[:1].expand(3, -1, -1), torch.ones(1, 3, dtype=torch.float64))
    assert_near(same[0], mean[:1], 1e-12)
    assert_near(same[1], covariance[:1], 1e-12)


@given(seed=seeds, scale=st.floats(1e-3, 1e3))
def test_matched_ignores_the_scale_of_the_weights(seed: int, scale: float) -> None:
    mean, covariance, weight = doubles(seed, 4, 3), covariances(seed + 1, 4, 3), doubles(seed + 2, 2, 4).abs()
    for one, two in zip(matched(mean, covariance, weight), matched(mean, covariance, scale * weight), strict=True):
        assert_near(one, two, 1e-9)


# -- to a mixture ----------------------------------------------------------------------------------


@given(apart=st.floats(0.0, 1e4))
def test_kl_to_a_mixture_of_one_is_exact(apart: float) -> None:
    assert float(kl_mixture(torch.tensor([apart]), torch.ones(1))) == pytest.approx(apart, rel=1e-6, abs=1e-6)


@given(seed=seeds, batch=st.lists(st.integers(1, 3), max_size=2), count=st.integers(1, 5))
def test_kl_mixture_equals_the_formula(seed: int, batch: list[int], count: int) -> None:
    apart = 3 * doubles(seed, *batch, count).abs()
    weight = torch.softmax(doubles(seed + 1, *batch, count), -1)
    found = kl_mixture(apart, weight)
    assert found.shape == tuple(batch)
    assert_near(found, -((weight * (-apart).exp()).sum(-1)).log(), 1e-9)
    # Between the nearest component, as if it had all the weight, and the nearest one with the weight it has.
    assert (found >= apart.min(-1).values - 1e-9).all()
    assert (found <= (apart - weight.log()).min(-1).values + 1e-9).all()


def test_kl_mixture_is_close_to_sampling_for_components_far_apart() -> None:
    mean, covariance = torch.tensor([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]]).double(), covariances(0, 3, 2)
    weight = torch.tensor([0.5, 0.3, 0.2]).double()
    for near in range(3):
        own, spread = mean[near] + 0.7, covariances(near + 1, 2)
        x = sampled(own, spread, 100_000, 9)
        parts = torch.stack([MultivariateNormal(mean[j], covariance[j]).log_prob(x) for j in range(3)], -1)
        expected = (MultivariateNormal(own, spread).log_prob(x) - torch.logsumexp(parts + weight.log(), -1)).mean()
        found = kl_mixture(kl_full(own, spread, mean, covariance), weight)
        assert float(found) == pytest.approx(float(expected), rel=0.02)


@given(seed=seeds, nearness=st.floats(0.0, 20.0))
def test_components_without_weight_do_not_matter(seed: int, nearness: float) -> None:
    apart, weight = 5 * doubles(seed, 3).abs(), torch.softmax(doubles(seed + 1, 3), -1)
    expected = float(kl_mixture(apart, weight))
    zero = torch.zeros(1, dtype=torch.float64)
    more = torch.cat([apart, zero + nearness]), torch.cat([weight, zero])
    assert float(kl_mixture(*more)) == pytest.approx(expected, abs=1e-9)


def test_a_near_component_without_weight_does_not_hide_how_far_the_others_are() -> None:
    found = kl_mixture(torch.tensor([200.0, 0.0]), torch.tensor([1.0, 0.0]))
    assert float(found) == pytest.approx(200.0)


def test_kl_mixture_has_finite_gradients() -> None:
    apart = torch.tensor([500.0, 3.0, 80.0], requires_grad=True)
    weight = torch.tensor([0.7, 0.3, 0.0], requires_grad=True)
    kl_mixture(apart, weight).backward()
    assert torch.isfinite(apart.grad).all()
    assert torch.isfinite(weight.grad).all()
    assert float(apart.grad.sum()) == pytest.approx(1.0)


# -- how far classes are apart ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_class_separation_equals_numpy(seed: int) -> None:
    mean, covariance = doubles(seed, 3, 4, 5), covariances(seed + 1, 3, 4, 5)
    count = torch.tensor([[3.0, 1.0, 0.0, 2.0], [1.0, 1.0, 1.0, 1.0], [0.0, 4.0, 0.0, 0.0]])  # the last has no pair
    expected = []
    for m in range(3):
        for c in range(4):
            for e in range(c):
                if count[m, c] and count[m, e]:
                    gap = (mean[m, c] - mean[m, e]).numpy()
                    line = gap / np.linalg.norm(gap)
                    pooled = (covariance[m, c] + covariance[m, e]).numpy() / 2
                    expected.append(np.linalg.norm(gap) / np.sqrt(line @ pooled @ line))
    assert len(expected) == 9
    assert float(class_separation(mean, covariance, count)) == pytest.approx(np.mean(expected))
    # Of one dimension: the textbook's d'; all distances measured with another rule do not change it.
    ruler = 7.0
    assert float(class_separation(ruler * mean, ruler**2 * covariance, count)) == pytest.approx(np.mean(expected))
    one = class_separation(torch.tensor([[[0.0], [3.0]]]), torch.tensor([[[[4.0]], [[2.0]]]]), torch.ones(1, 2))
    assert float(one) == pytest.approx(3.0 / math.sqrt(3.0))


def test_class_separation_of_odd_input_is_finite() -> None:
    """Classes at one place, nobody with two classes, and a covariance that noise has made negative."""
    eye, ones = torch.eye(2).expand(2, 3, 2, 2), torch.ones(2, 3)
    assert float(class_separation(torch.zeros(2, 3, 2), eye, ones)) == 0.0
    assert float(class_separation(doubles(0, 2, 3, 2).float(), eye, torch.zeros(2, 3))) == 0.0
    assert float(class_separation(doubles(0, 2, 3, 2).float(), -eye, ones)) == 0.0
    assert float(class_separation(torch.zeros(2, 1, 2), eye[:, :1], ones[:, :1])) == 0.0
