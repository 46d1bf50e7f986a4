"""Polynomial bases of graph signals, and learned filters over them.

A filter of order K is sum_k w_k H_k with H_k [n, F] a signal of the k-th kind. The signals do not depend on any weight, so
they are computed once for the whole training. With A = D^-1/2 A D^-1/2 (no self-loops) and L = I - A:

    monomial   H_k = A^k X
    chebyshev  H_k = T_k(L - I) X
    bernstein  H_k = binom(K, k) / 2^K (2I - L)^(K-k) L^k X
    unifilter  H_k = mix A^k X + (1 - mix) ||x|| u_k  (Huang et al., How Universal Polynomial Bases Enhance Spectral
               Graph Neural Networks, ICML 2024), where the u_k of a feature x are unit vectors of its Krylov space, every two
               of them at the angle pi/2 (1 - h), h the homophily of the edges between training nodes

Memory: 4 (K + 1) n F bytes, and again for the training rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort import Client, Cohort
from fedquilt.graphs.split import TRAIN
from fedquilt.rows import Rows

KINDS = ("unifilter", "monomial", "chebyshev", "bernstein")


def client_basis(client: Client, kind: str, order: int, mix: float) -> np.ndarray:
    """H_0 .. H_K of one client: [K + 1, n, F] float32."""
    raw: Any = client.graph.x
    x = np.asarray(raw.toarray() if sp.issparse(raw) else raw, dtype=np.float64)
    a = normalised(client)
    if kind == "monomial":
        out = _powers(a, x, order)
    elif kind == "chebyshev":
        out = _chebyshev(a, x, order)
    elif kind == "bernstein":
        out = _bernstein(a, x, order)
    else:
        rotated = rotated_basis(a, x, order, homophily(client))
        out = [mix * p + (1.0 - mix) * u for p, u in zip(_powers(a, x, order), rotated, strict=True)]
    return np.stack(out).astype(np.float32)


def normalised(client: Client) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2 without self-loops, [n, n] float64; a node without neighbours gets zero."""
    a = client.graph.adjacency().astype(np.float64)
    degree = np.asarray(a.sum(axis=1)).ravel()
    scale = sp.diags(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    return (scale @ a @ scale).tocsr()


def homophily(client: Client) -> float:
    """Share of the edges between two training nodes that join equal labels, (same + 1) / (edges + 2)."""
    known = (client.split == TRAIN) & (client.graph.y >= 0)
    u, v = client.graph.edges
    seen = known[u] & known[v]
    same = int((client.graph.y[u] == client.graph.y[v])[seen].sum())
    return (same + 1) / (int(seen.sum()) + 2)


def _powers(a: sp.csr_matrix, x: np.ndarray, order: int) -> list[np.ndarray]:
    out = [x]
    for _ in range(order):
        out.append(a @ out[-1])
    return out


def _chebyshev(a: sp.csr_matrix, x: np.ndarray, order: int) -> list[np.ndarray]:
    """T_0 = 1, T_1 = t, T_k = 2 t T_{k-1} - T_{k-2} at t = L - I = -A."""
    out = [x, -(a @ x)]
    while len(out) <= order:
        out.append(-2.0 * (a @ out[-1]) - out[-2])
    return out[: order + 1]


def _bernstein(a: sp.csr_matrix, x: np.ndarray, order: int) -> list[np.ndarray]:
    """2I - L = I + A and L = I - A; the powers of the first are shared, the second is applied k times."""
    high = [x]
    for _ in range(order):
        high.append(high[-1] + a @ high[-1])
    out = []
    for k in range(order + 1):
        h = high[order - k]
        for _ in range(k):
            h = h - a @ h
        out.append(math.comb(order, k) / 2.0**order * h)
    return out


def rotated_basis(a: sp.csr_matrix, x: np.ndarray, order: int, homophily: float) -> list[np.ndarray]:
    """For each column of x, vectors of its length at one angle to each other: K + 1 arrays [n, F].

    v_k is the next orthonormal vector of the column's Krylov space, s the sum of u_0 .. u_{k-1} and c the cosine of the
    angle. With b = 1 + (k - 1) c,  u_k = (c / b) s + sqrt(1 - k c^2 / b) v_k  has length one and cosine c to all before it.
    Where the Krylov space is exhausted, v_k is zero. Orthogonalised twice against all before: on dense graphs a three-term
    recurrence soon turns rounding errors into directions.
    """
    c = math.cos(math.pi / 2.0 * (1.0 - homophily))
    length = np.linalg.norm(x, axis=0)
    krylov = [np.divide(x, length, out=np.zeros_like(x), where=length > 0)]
    total = krylov[0].copy()
    out = [x]
    for k in range(1, order + 1):
        v = a @ krylov[-1]
        for before in krylov * 2:
            v -= np.einsum("nf,nf->f", v, before) * before
        size = np.linalg.norm(v, axis=0)
        krylov.append(np.divide(v, size, out=np.zeros_like(v), where=size > 1e-8))
        b = 1.0 + (k - 1) * c
        u = (c / b) * total + math.sqrt(max(0.0, 1.0 - k * c * c / b)) * krylov[-1]
        out.append(u * length)
        total += u
    return out


class Basis:
    """Signals of a cohort, on all rows or on some: `combine` mixes them with every client's own coefficients."""

    def __init__(self, rows: Rows, signals: Sequence[Tensor]) -> None:
        """`signals` holds [O, n_m, F] for each client, n_m its rows without padding."""
        self.rows = rows
        self.width = signals[0].shape[2]
        self.signals = [signal.flatten(1) for signal in signals]

    def combine(self, weight: Tensor) -> Tensor:
        """sum_k w_mk H_mk: weight [M, O] -> [R, F]; zero in rows that are padding."""
        out: Tensor = _Combine.apply(weight, self)
        return out

    def own(self, rows: Tensor) -> list[Tensor]:
        """Each client's rows without padding, as one vector: [R, F] -> [n_m F]."""
        return [part.flatten() for part in self.rows.parts_of(rows)]


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight: Tensor, basis: Basis) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.basis = basis
        out = weight.new_zeros(basis.rows.rows, basis.width)
        for w, signal, part in zip(weight, basis.signals, basis.own(out), strict=True):
            torch.mv(signal.T, w, out=part)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        basis: Basis = ctx.basis
        each = [signal @ part for signal, part in zip(basis.signals, basis.own(grad.contiguous()), strict=True)]
        return torch.stack(each), None


class Bases:
    """A cohort's signals on all its rows and on its training rows, and their means over each client's nodes.

    Attributes:
        everywhere, training: the signals. means: [M, O, F] float32.
    """

    def __init__(self, cohort: Cohort, kind: str, order: int, mix: float) -> None:
        def make(client: Client) -> tuple[Tensor, Tensor]:
            signals = torch.from_numpy(client_basis(client, kind, order, mix)).to(cohort.device)
            return signals, signals[:, torch.from_numpy(client.training_nodes).to(cohort.device)]

        # Kept with the client, so that cohorts of some clients share them.
        name = ("basis", kind, order, mix, cohort.device)
        kept = [client.once(name, make) for client in cohort.members]
        self.everywhere = Basis(cohort, [everywhere for everywhere, _ in kept])
        self.training = Basis(cohort.training, [training for _, training in kept])
        self.means = torch.stack([everywhere.mean(1) for everywhere, _ in kept])
