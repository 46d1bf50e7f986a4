"""Divergences between Gaussians, and the Gaussian that matches the moments of a mixture."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 2**23  # numbers held at once while comparing all pairs


def kl_diagonal(mean: Tensor, logvar: Tensor, other_mean: Tensor, other_variance: float) -> Tensor:
    """Compute KL(N(mean, exp(logvar)) || N(other_mean, other_variance I)) per dimension: the shape of `mean`.

    1/2 (s^2 / v + (m - m')^2 / v - 1 - log(s^2 / v))
    """
    gap = (mean - other_mean) ** 2
    return 0.5 * ((logvar.exp() + gap) / other_variance - 1.0 - logvar + math.log(other_variance))


def kl_full(mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor) -> Tensor:
    """Compute KL(N(m, S) || N(m', S')) with full covariances: [..., d], [..., d, d] -> [...].

    1/2 (tr(S'^-1 S) + (m' - m)^T S'^-1 (m' - m) - d + log |S'| / |S|)
    """
    # Not checked, because a check would synchronise. A matrix that is not positive definite gives NaN, which training refuses.
    root = torch.linalg.cholesky_ex(other_covariance).L
    own = torch.linalg.cholesky_ex(covariance).L
    spread = torch.linalg.solve_triangular(root, own, upper=False)
    gap = torch.linalg.solve_triangular(root, (other_mean - mean).unsqueeze(-1), upper=False)
    volume = _log_diagonal(root) - _log_diagonal(own)
    return 0.5 * (spread.square().sum((-2, -1)) + gap.square().sum((-2, -1)) - mean.shape[-1]) + volume


def _log_diagonal(root: Tensor) -> Tensor:
    return root.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def jensen_shannon(mean: Tensor, logvar: Tensor, noise: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the Jensen-Shannon divergence between all pairs of diagonal Gaussians, in bits: in [0, 1].

    JS(p, q) = 1/2 E_p[log2 2p / (p + q)] + 1/2 E_q[log2 2q / (p + q)], where the expectation of f under N(m, s^2) is
    sum_i weight_i f(m + s noise_i).

    Args:
        mean, logvar: [B, n, d], n Gaussians in each of B problems.
        noise, weight: [S, d] and [S], standard normal draws (equal weights if None), or the nodes of a quadrature.

    Returns:
        [B, n, n], symmetric, zero on the diagonal. Memory: `CHUNK` numbers at once, or S n where that is more.
    """
    problems, count, _ = mean.shape
    weight = torch.full_like(noise[:, 0], 1.0 / len(noise)) if weight is None else weight
    at_once = max(1, CHUNK // (len(noise) * count * count))
    out = mean.new_empty(problems, count, count, dtype=torch.float32)
    for first in range(0, problems, at_once):
        some = slice(first, first + at_once)
        out[some] = _jensen_shannon(mean[some].double(), logvar[some].double(), noise.double(), weight.double())
    return out


def mean_jensen_shannon(mean: Tensor, logvar: Tensor, noise: Tensor, weight: Tensor) -> Tensor:
    """The mean over problems of `jensen_shannon`, some problems at a time: [B, n, d] -> [n, n]."""
    problems, count, _ = mean.shape
    out = mean.new_zeros(count, count, dtype=torch.float32)
    for some in torch.arange(problems).split(max(1, CHUNK // (len(noise) * count * count))):
        part = slice(int(some[0]), int(some[-1]) + 1)
        out += jensen_shannon(mean[part], logvar[part], noise, weight).sum(0)
    return out.div_(problems)


def _jensen_shannon(mean: Tensor, logvar: Tensor, noise: Tensor, weight: Tensor) -> Tensor:
    problems, count, _ = mean.shape
    rows = max(1, CHUNK // (problems * len(noise) * count))
    # Into one block: small results between large temporary blocks would keep the allocator from using those again.
    half = mean.new_empty(problems, count, count, dtype=torch.float32)
    for first in range(0, count, rows):
        half[:, first : first + rows] = _divergence(mean, logvar, first, rows, noise, weight)
    return (half + half.mT).mul_(0.5).clamp_(0.0, 1.0)


def _divergence(mean: Tensor, logvar: Tensor, first: int, rows: int, noise: Tensor, weight: Tensor) -> Tensor:
    """Compute E_i[log2 2 p_i / (p_i + p_j)] for i = first .. first + rows - 1 and all j: [B, n, d] -> [B, rows, n]."""
    problems, count, width = mean.shape
    mine = slice(first, first + rows)
    samples = mean[:, mine].unsqueeze(2) + noise * (0.5 * logvar[:, mine]).exp().unsqueeze(2)  # [B, rows, S, d]
    flat = samples.reshape(problems, -1, width)
    precision = (-logvar).exp()
    # -2 log p_j(x) + const = sum_d (x - m_j)^2 / s_j^2 + log s_j^2, as products of matrices
    quadratic = flat.square() @ precision.mT
    quadratic -= 2.0 * flat @ (mean * precision).mT  # in place: this is what the memory of a server is made of
    quadratic += (mean.square() * precision + logvar).sum(-1).unsqueeze(1)
    log_density = quadratic.mul_(-0.5).view(problems, -1, len(noise), count)  # [B, i, S, j]: log p_j at samples of i
    own = log_density[..., mine].diagonal(dim1=1, dim2=3).permute(0, 2, 1).unsqueeze(-1).clone()  # [B, i, S, 1]
    expected = torch.einsum("bisj,s->bij", F.softplus(log_density.sub_(own)), weight)
    return 1.0 - expected / math.log(2.0)


@lru_cache(maxsize=4)
def quadrature(nodes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return Gauss-Hermite nodes [S, 1] and weights [S] for expectations under the standard normal."""
    where, weight = np.polynomial.hermite_e.hermegauss(nodes)
    return torch.from_numpy(where).unsqueeze(1).to(device), torch.from_numpy(weight / weight.sum()).to(device)


def matched(mean: Tensor, covariance: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the Gaussians that have the first two moments of k mixtures of the same n Gaussians.

    m = sum_i w_i m_i,  S = sum_i w_i (S_i + (m_i - m)(m_i - m)^T), where each mixture's weights are first divided by their sum.
    A mixture with all weights zero gives N(0, 0).

    Shapes: mean [..., n, d], covariance [..., n, d, d], weight [..., k, n] -> [..., k, d], [..., k, d, d].
    """
    share = weight / weight.sum(-1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
    centre = share @ mean
    gap = mean.unsqueeze(-3) - centre.unsqueeze(-2)
    spread = torch.einsum("...kn,...nij->...kij", share, covariance)
    return centre, spread + torch.einsum("...kn,...kni,...knj->...kij", share, gap, gap)


def kl_mixture(apart: Tensor, weight: Tensor) -> Tensor:
    """Approximate the KL to a mixture from the KL to each component: [..., J], weights [..., J] that sum to one -> [...].

    -log sum_j w_j exp(-KL_j), Hershey and Olsen's variational approximation; exact for one component.
    """
    log_weight = torch.where(weight > 0, weight, 1.0).log().masked_fill(weight <= 0, -torch.inf)
    return -torch.logsumexp(log_weight - apart, dim=-1)


def class_separation(mean: Tensor, covariance: Tensor, count: Tensor) -> Tensor:
    """Compute the distance between two classes of a client in standard deviations, mean over pairs and clients: a scalar.

    |g| / s with g = m_c - m_c' and s^2 = g^T (S_c + S_c') / 2 g / |g|^2, the variance along the line between the means. Below
    one the classes lie within each other. Pairs of which a class has no node do not count; zero where there is no pair.

    Shapes: mean [M, C, d], covariance [M, C, d, d], count [M, C].
    """
    first, second = torch.triu_indices(mean.shape[1], mean.shape[1], offset=1, device=mean.device)
    both = (count[:, first] > 0) & (count[:, second] > 0)
    gap = mean[:, first] - mean[:, second]
    length = gap.square().sum(-1)
    along = 0.5 * torch.einsum("mpi,mpij,mpj->mp", gap, covariance[:, first] + covariance[:, second], gap)
    tiny = torch.finfo(mean.dtype).tiny
    apart = torch.where(both & (along > 0), length / along.clamp_min(tiny).sqrt(), 0.0)
    return apart.sum() / both.sum().clamp_min(1)
