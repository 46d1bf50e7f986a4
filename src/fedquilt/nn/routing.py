"""Neighbourhood routing: Ma et al., Disentangled Graph Convolutional Networks, ICML 2019. It has no parameters.

Every edge is softly assigned to one of K latent factors. A node's part c^k is computed from the neighbours that factor k
connects it to:

    p_uv^k = softmax_k(z_v^k . c_u^k / temperature)
    c_u^k  = (z_u^k + sum_v w_uv p_uv^k z_v^k) / || . ||, starting with c = z

w_uv is the weight of the edge relative to the client's mean, one where edges have no weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.devices.device import on_host
from fedquilt.nn.edges import Edges, Scores
from fedquilt.nn.meetings import meetings

EPSILON = 1e-6  # a vector up to this length counts as zero
SLOPE = 0.01  # of the leaky ReLU below zero
CACHED = 2**19  # numbers that stay in a processor's cache
LANES = 8  # a product of a multiple of so many numbers is fastest
MANY = 4  # iterations from which on products of vectors that meet at a node are computed once


def unit(z: Tensor) -> Tensor:
    """Normalise along the last axis: u = z / ||z||, with gradient (g - u (u . g)) / ||z||. Zero stays zero, with gradient g."""
    out: Tensor = _Unit.apply(z)
    return out


def route(edges: Edges, z: Tensor, iterations: int, through: bool = False, temperature: float = 1.0) -> Tensor:
    """Route `iterations` times: z [K, R, d] -> [K, R, d], each factor's part of each node with length one.

    The assignments p are constants when differentiating, as in expectation-maximisation, where the gradient at the fixed
    point does not depend on them. With `through`, all iterations are differentiated.
    """
    return unit(mix(edges, unit(z), iterations, through, temperature))


def mix(edges: Edges, z: Tensor, iterations: int, through: bool = False, temperature: float = 1.0) -> Tensor:
    """Compute `route` of vectors z of length one, before the last division by lengths: [K, R, d] -> [K, R, d]."""
    factors, rows, width = z.shape
    z = z.reshape(factors * rows, width)
    if through:
        c = z
        for _ in range(iterations - 1):
            c = unit(edges.sum_onto(_weighted(edges, _shares(edges.dot(c, z), factors, temperature)), z))
        p = _shares(edges.dot(c, z), factors, temperature)
    else:
        p = assignments(edges, z, factors, iterations, temperature)
    return edges.sum_onto(_weighted(edges, p), z).view(factors, rows, width)


def unit_leaky(s: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute unit(leaky_relu(s) * mask): [..., d] -> [..., d]; no mask: all ones.

    It is what a layer that starts with `unit` makes of the one before. The length of s does not matter, so that s need not be
    divided by it, but for a length below EPSILON after the ReLU, which counts as zero.
    """
    out: Tensor = _UnitLeaky.apply(s, mask)
    return out


@torch.no_grad()
def assignments(edges: Edges, z: Tensor, factors: int, iterations: int, temperature: float) -> Tensor:
    """Return the assignments p of the last iteration: z [K R, d] -> [K E].

    On the CPU some clients at a time, so that their rows stay in the cache over all iterations.
    """
    z = z.detach()
    if not on_host(z):
        return _by_vectors(edges, z, factors, iterations, temperature)
    whole = z.view(factors, -1, z.shape[1])
    out = z.new_empty(factors, edges.count // factors)
    for part in edges.parts(max(1, CACHED // (factors * z.shape[1]))):
        rows = F.pad(whole[:, part.rows], (0, -z.shape[1] % LANES)).flatten(0, 1)
        met = part.edges.once("meetings", lambda e: meetings(e, factors)) if iterations >= MANY else None
        if met is None:
            found = _by_vectors(part.edges, rows, factors, iterations, temperature)
        else:
            found = met.assignments(rows, iterations, temperature)
        out[:, part.span] = found.view(factors, -1)
    return out.flatten()


def _by_vectors(edges: Edges, z: Tensor, factors: int, iterations: int, temperature: float) -> Tensor:
    score = Scores(edges, z)
    p = _shares(score(z), factors, temperature)
    for _ in range(iterations - 1):
        c = edges.sum(_weighted(edges, p), z).add_(z)
        # Divide the scores by the length of c, not c itself: they are fewer numbers.
        inverse = torch.linalg.vector_norm(c, dim=1).clamp_min_(EPSILON).reciprocal_()
        p = _shares(score(c).mul_(inverse.index_select(0, edges.source)), factors, temperature)
    return p


def _weighted(edges: Edges, p: Tensor) -> Tensor:
    """w p: [K E] -> [K E]."""
    if edges.weight is None or not edges.count:
        return p
    return (p.view(-1, len(edges.weight)) * edges.weight).flatten()


def _shares(score: Tensor, factors: int, temperature: float) -> Tensor:
    score = score if temperature == 1.0 else score / temperature
    return torch.softmax(score.view(factors, -1), dim=0).flatten()


class _UnitLeaky(torch.autograd.Function):
    """The same in as few passes; leaky_relu(s) * mask is s times a factor, which is also its slope."""

    @staticmethod
    def forward(ctx, s: Tensor, mask: Tensor | None) -> Tensor:  # type: ignore[no-untyped-def]
        mask = s.new_ones(()).expand_as(s) if mask is None else mask
        factor = torch.ops.aten.leaky_relu_backward(mask, s, SLOPE, False)
        u = s * factor
        length = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
        inverse = torch.where(length > EPSILON, length, 1.0).reciprocal_()
        u *= inverse
        ctx.save_for_backward(u, inverse, factor)
        return u

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        u, inverse, factor = ctx.saved_tensors
        along = (u * grad).sum(-1, keepdim=True)
        return torch.addcmul(grad, u, along, value=-1.0).mul_(factor).mul_(inverse), None


class _Unit(torch.autograd.Function):
    """Normalisation in half as many passes over memory as autograd takes."""

    @staticmethod
    def forward(ctx, z: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
        inverse = torch.where(length > EPSILON, length, 1.0).reciprocal_()
        u = z * inverse
        ctx.save_for_backward(u, inverse)
        return u

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        u, inverse = ctx.saved_tensors
        along = (u * grad).sum(-1, keepdim=True)
        return torch.addcmul(grad, u, along, value=-1.0).mul_(inverse)
