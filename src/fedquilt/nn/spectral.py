"""Polynomial bases of graph signals, and learned filters over them.

A filter of order K is sum_k w_k H_k, where H_k [n, F] is the k-th basis signal. The signals do not depend on any weight, so
they are computed once for the whole training. With A = D^-1/2 A D^-1/2 (no self-loops; weighted where edges have weights) and
L = I - A:

    monomial   H_k = A^k X
    chebyshev  H_k = T_k(L - I) X
    bernstein  H_k = binom(K, k) / 2^K (2I - L)^(K-k) L^k X
    unifilter  H_k = mix A^k X + (1 - mix) ||x|| u_k  (Huang et al., How Universal Polynomial Bases Enhance Spectral
               Graph Neural Networks, ICML 2024), where the u_k of a feature x are unit vectors of its Krylov space, every two
               of them at the angle pi/2 (1 - h), h the homophily of the edges between training nodes

Memory: 4 (K + 1) n F bytes for n nodes and the F features that are not zero everywhere, and the same for the training rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.graphs import operators
from fedquilt.tasks.node_classification import training_homophily

Kind = Literal["unifilter", "monomial", "chebyshev", "bernstein"]
KINDS: tuple[Kind, ...] = get_args(Kind)
EXHAUSTED = 1e-8  # a next Krylov vector up to this length is rounding error


def client_basis(client: Client, kind: Kind, order: int, mix: float) -> np.ndarray:
    """Compute H_0 .. H_K of one client: [K + 1, n, F] float32."""
    signals, features = occurring_basis(client, kind, order, mix, torch.device("cpu"))
    out = np.zeros((order + 1, client.graph.nodes, client.graph.features), dtype=np.float32)
    out[:, :, features.numpy()] = signals.numpy()
    return out


def occurring_basis(client: Client, kind: Kind, order: int, mix: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Compute the same for the F' features that are non-zero at some node of the client: [K + 1, n, F'] float32.

    Also returns the numbers of these features, [F']. Computes in double precision on `device`; an accelerator takes a
    hundredth of the CPU's time.
    """
    raw: Any = client.graph.x
    features = np.flatnonzero(np.asarray((raw != 0).sum(axis=0)).ravel())
    raw = raw[:, features]
    x = torch.from_numpy(np.asarray(raw.toarray() if sp.issparse(raw) else raw, dtype=np.float64)).to(device)
    a = as_torch(normalised(client)).to(device)
    if kind == "monomial":
        out = _powers(a, x, order)
    elif kind == "chebyshev":
        out = _chebyshev(a, x, order)
    elif kind == "bernstein":
        out = _bernstein(a, x, order)
    else:
        rotated = rotated_basis(a, x, order, client.once("homophily", training_homophily))
        out = [mix * p + (1.0 - mix) * u for p, u in zip(_powers(a, x, order), rotated, strict=True)]
    return torch.stack([signal.float() for signal in out]), torch.from_numpy(features).to(device)


def as_torch(matrix: sp.csr_matrix) -> Tensor:
    """Convert a matrix to a torch tensor in double precision."""
    parts = (torch.from_numpy(matrix.indptr.astype(np.int64)), torch.from_numpy(matrix.indices.astype(np.int64)))
    values = torch.from_numpy(matrix.data.astype(np.float64))
    return torch.sparse_csr_tensor(*parts, values, size=matrix.shape, check_invariants=False)


def normalised(client: Client) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2 without self-loops, [n, n] float64; a node without neighbours gets zero."""
    a = operators.adjacency(client.graph.edges, client.graph.nodes, client.edge_weights).astype(np.float64)
    degree = np.asarray(a.sum(axis=1)).ravel()
    scale = sp.diags(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    return (scale @ a @ scale).tocsr()


def _powers(a: Tensor, x: Tensor, order: int) -> list[Tensor]:
    out = [x]
    for _ in range(order):
        out.append(a @ out[-1])
    return out


def _chebyshev(a: Tensor, x: Tensor, order: int) -> list[Tensor]:
    """T_0 = 1, T_1 = t, T_k = 2 t T_{k-1} - T_{k-2} at t = L - I = -A."""
    out = [x, -(a @ x)]
    while len(out) <= order:
        out.append(-2.0 * (a @ out[-1]) - out[-2])
    return out[: order + 1]


def _bernstein(a: Tensor, x: Tensor, order: int) -> list[Tensor]:
    """Use 2I - L = I + A and L = I - A. All terms share the powers of the first; the second is applied k times."""
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


def rotated_basis(a: Tensor, x: Tensor, order: int, homophily: float) -> list[Tensor]:
    """Compute K + 1 vectors for each column of x, as long as the column, every two at the same angle: K + 1 arrays [n, F].

    v_k is the next orthonormal vector of the column's Krylov space, s the sum of u_0 .. u_{k-1} and c the cosine of the
    angle. With b = 1 + (k - 1) c,  u_k = (c / b) s + sqrt(1 - k c^2 / b) v_k  has length one and cosine c to all before it.
    Where the Krylov space is exhausted, v_k is zero. Each v_k is orthogonalised twice against all vectors before it: on dense
    graphs a three-term recurrence soon returns rounding errors as vectors.
    """
    c = math.cos(math.pi / 2.0 * (1.0 - homophily))
    length = torch.linalg.vector_norm(x, dim=0)
    krylov = torch.zeros(order + 1, *x.shape, dtype=x.dtype, device=x.device)
    krylov[0] = x / torch.where(length > 0, length, 1.0)
    total = krylov[0].clone()
    out = [x]
    for k in range(1, order + 1):
        v, before = a @ krylov[k - 1], krylov[:k]
        for _ in range(2):
            along = torch.stack([(v * one).sum(0) for one in before])
            for one, share in zip(before, along, strict=True):
                v.addcmul_(one, share, value=-1.0)
        size = torch.linalg.vector_norm(v, dim=0)
        krylov[k] = torch.where(size > EXHAUSTED, v / size.clamp_min(EXHAUSTED), 0.0)
        b = 1.0 + (k - 1) * c
        u = (c / b) * total + math.sqrt(max(0.0, 1.0 - k * c * c / b)) * krylov[k]
        out.append(u * length)
        total += u
    return out


class Basis:
    """Signals of a cohort on all rows or on some of them. `linear` filters them and multiplies by each client's weights.

    Features that are zero at all nodes of a client are not stored: their signals are zero at all orders (on Cora in ten parts,
    two fifths of the features).
    """

    def __init__(self, rows: Rows, signals: Sequence[Tensor], features: Sequence[Tensor]) -> None:
        """`signals` holds [O, n_m, F_m] for each client (n_m: its rows without padding); `features` holds the numbers [F_m]."""
        self.rows, self.features = rows, list(features)
        self.signals = [signal.flatten(1) for signal in signals]

    def linear(self, coefficients: Tensor, weight: Tensor, keep: Tensor | None = None) -> Tensor:
        """Compute (sum_k w_mk H_mk) W_m: coefficients [M, O], weight [M, F, H] -> [R, H], zero in rows that are padding.

        The filtered signals are first multiplied by `keep` [R, F] if it is given, such as a dropout mask.
        """
        out: Tensor = _Linear.apply(coefficients, weight, self, keep)
        return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, coefficients: Tensor, weight: Tensor, basis: Basis, keep: Tensor | None) -> Tensor:  # type: ignore[no-untyped-def]
        out = weight.new_zeros(basis.rows.rows, weight.shape[2])
        kept: list[Tensor] | None = None if keep is None else basis.rows.parts_of(keep)
        filtered = []
        for m, part in enumerate(basis.rows.parts_of(out)):
            features = basis.features[m]
            p = torch.mm(coefficients[m : m + 1], basis.signals[m]).view(len(part), len(features))
            if kept is not None:
                p *= kept[m].index_select(1, features)
            torch.mm(p, weight[m].index_select(0, features), out=part)
            filtered.append(p)
        ctx.save_for_backward(weight, *filtered)
        ctx.basis, ctx.kept = basis, kept
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[no-untyped-def]
        weight, *filtered = ctx.saved_tensors
        basis: Basis = ctx.basis
        to_weight = torch.zeros_like(weight)
        to_coefficients = []
        for m, (p, part) in enumerate(zip(filtered, basis.rows.parts_of(grad), strict=True)):
            features = basis.features[m]
            to_weight[m].index_copy_(0, features, p.T @ part)
            back = part @ weight[m].index_select(0, features).T
            if ctx.kept is not None:
                back *= ctx.kept[m].index_select(1, features)
            to_coefficients.append(basis.signals[m] @ back.flatten())
        return torch.stack(to_coefficients), to_weight, None, None


class Bases:
    """A cohort's signals on all its rows and on its training rows, and their means over each client's nodes.

    Attributes:
        everywhere, training: the signals. means: [M, O, F] float32.
    """

    def __init__(self, cohort: Cohort, kind: Kind, order: int, mix: float) -> None:
        def make(client: Client) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            signals, features = occurring_basis(client, kind, order, mix, cohort.device)
            means = torch.zeros(order + 1, cohort.features, device=cohort.device).index_copy_(
                1, features, signals.mean(1)
            )
            return signals, signals[:, torch.from_numpy(client.training_nodes).to(cohort.device)], features, means

        # Stored with the client, so that cohorts that contain it share them.
        name = ("basis", kind, order, mix, cohort.device)
        everywhere, training, features, means = zip(*(c.once(name, make) for c in cohort.members), strict=True)
        self.everywhere = Basis(cohort, everywhere, features)
        self.training = Basis(cohort.training, training, features)
        self.means = torch.stack(means)
