"""A network with one hidden layer whose units look at the graph through learned polynomial filters, a client its own.

With A = D^-1/2 A D^-1/2 (no self-loops), features X and the hidden units in G groups of equal width, group g reads

    h_g = relu( sum_k c_gk s_k A^k (X W_g + E) + b_g ),   k = 0 .. K

and a linear classifier reads all of h. The coefficients c [G, K + 1] say what is far and near, alike and unlike; at the start
each group looks at one distance only, from a node itself (k = 0) to K steps away. s_k = ||X|| / ||A^k X|| makes all distances
equally loud: powers of A fade, and the more the less alike neighbours are. (The bases monomial and chebyshev, T_k(A) in place
of A^k, have s_k = 1.) E, where asked for, is a row of numbers for every
node: on graphs where *who* the neighbours are says more than what they look like.

Filters act on X W, or on X where features are fewer than hidden units: the narrower of the two is spread.

Memory: O(R H) for each power, nothing that grows with features times nodes beyond the features themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort import Client, Cohort
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Output, Shapes, activate
from fedquilt.nn.sparse import SparseMatrix
from fedquilt.nn.spectral import normalised
from fedquilt.rows import Rows

Basis = Literal["scaled", "monomial", "chebyshev"]
FILTER, IDENTITY = "filter", "identity"
NODE_LAYER = 1  # which of a step's random numbers drop nodes
FAINT = 1e-6  # share of ||X|| under which what is left of it is rounding
COLUMNS = 128  # features that are dense at a time while their powers are measured


@dataclass(frozen=True)
class FilterNet:
    """The network as a description and a function of a cohort and its weights; it holds no state.

    Attributes:
        features, hidden, classes: widths of the input, the hidden layer and the output.
        order: K. groups: G.
        identity: rows of the table E; a node takes that of its place in its client, modulo their number; 0: no table.
        node_dropout: share of the nodes whose input is dropped in a training step, before it spreads.
        basis: powers of A scaled to be equally loud, powers as they are, or Chebyshev polynomials.
    """

    features: int
    hidden: int
    classes: int
    order: int
    groups: int
    identity: int
    node_dropout: float
    basis: Basis = "scaled"

    def shapes(self) -> Shapes:
        """The weights that mean the same at every client, by name, without the leading client axis."""
        return {
            "hidden.weight": (self.features, self.hidden),
            "hidden.bias": (self.hidden,),
            "classifier.weight": (self.hidden, self.classes),
            "classifier.bias": (self.classes,),
        }

    def private_start(self, some: Tensor) -> Weights:
        """The coefficients and the table of identities at the start, for as many clients as `some` [M, ...] has."""
        clients = len(some)
        c = some.new_zeros(clients, self.groups, self.order + 1)
        if self.groups == 1:
            c += 1.0 / (self.order + 1)
        else:
            for g in range(self.groups):
                c[:, g, round(g * self.order / (self.groups - 1))] = 1.0
        table = {IDENTITY: some.new_zeros(clients, self.identity, self.hidden)} if self.identity else {}
        return {FILTER: c, **table}

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Logits and the hidden layer before its ReLU of every row, as for evaluation."""
        terms = self._terms(cohort, weights)
        if self._narrow:
            powers: Tensor = cohort.once(("powers", self.order, self.basis == "chebyshev"), self._powers)
            return self._last(cohort, self._mixed(cohort, powers, terms, weights), weights, None)
        near, far = self._sums(cohort, self._input(cohort, weights), terms)
        return self._last(cohort, near + _operator(cohort) @ far, weights, None)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """The same at the training nodes only (the rows of `cohort.training`), for less, with dropout."""
        rows, terms, keep = cohort.training, self._terms(cohort, weights), None
        if self.node_dropout:
            keep = Dropout(self.node_dropout, dropout.keys, dropout.step).mask(cohort, 1, NODE_LAYER)
        if self._narrow:
            powers = self._powers(cohort, keep)[rows.index]
            return self._last(rows, self._mixed(rows, powers, terms, weights), weights, dropout)
        z = self._input(cohort, weights)
        near, far = self._sums(cohort, z if keep is None else z * keep, terms)
        return self._last(rows, near[rows.index] + _training_operator(cohort) @ far, weights, dropout)

    @property
    def _narrow(self) -> bool:
        """Whether features are fewer than hidden units, so that it is they who are spread, which takes no gradient."""
        return self.features <= self.hidden and not self.identity

    @torch.no_grad()
    def _powers(self, cohort: Cohort, keep: Tensor | None = None) -> Tensor:
        """B_0(A) X .. B_K(A) X side by side, [R, (K + 1) F], without the nodes that `keep` [R, 1] drops."""
        a, twice = _operator(cohort), self.basis == "chebyshev"
        x: Tensor = cohort.once("dense features", _dense_features)
        out = [x if keep is None else x * keep]
        for k in range(1, self.order + 1):
            spread = a @ out[-1]
            out.append(2.0 * spread - out[-2] if twice and k > 1 else spread)
        return torch.cat(out, dim=1)

    def _mixed(self, rows: Rows, powers: Tensor, terms: list[Tensor], weights: Weights) -> Tensor:
        """sum_k terms_k B_k(A) X W in one product: [R, (K + 1) F] -> [R, H]."""
        scaled = torch.stack(terms, dim=1).unsqueeze(2) * weights["hidden.weight"].unsqueeze(1)
        return rows.multiply(powers, scaled.flatten(1, 2))

    def _terms(self, cohort: Cohort, weights: Weights) -> list[Tensor]:
        """c_gk s_k for each k, for every unit that of its group: K + 1 tensors [M, H]."""
        scaled = weights[FILTER].transpose(1, 2)
        if self.basis == "scaled":
            scales: Tensor = cohort.once(("distance scales", self.order), lambda c: _scales(c, self.order))
            scaled = scaled * scales.unsqueeze(2)
        group = torch.arange(self.hidden, device=scaled.device) * self.groups // self.hidden
        return list(scaled[:, :, group].unbind(1))

    def _input(self, cohort: Cohort, weights: Weights) -> Tensor:
        """X W + E, [R, H]."""
        z = cohort.x @ weights["hidden.weight"]
        if self.identity:
            z = z + weights[IDENTITY][cohort.client, cohort.position % self.identity]
        return z

    def _sums(self, cohort: Cohort, z: Tensor, terms: list[Tensor]) -> tuple[Tensor, Tensor]:
        """near, far [R, H] with near + A far = sum_k terms_k B_k(A) z, by Horner's rule (Clenshaw's for Chebyshev's basis).

        K - 1 products of width H; the last one is left to the caller, who may need it at some rows only.
        """
        a, twice = _operator(cohort), self.basis == "chebyshev"
        after, last = torch.zeros(()), cohort.scale(z, terms[-1])
        for term in reversed(terms[1:-1]):
            spread = a @ last
            after, last = last, cohort.scale(z, term) + (2.0 * spread - after if twice else spread)
        near = cohort.scale(z, terms[0])
        return (near - after if twice else near), last

    def _last(self, rows: Rows, h: Tensor, weights: Weights, dropout: Dropout | None) -> Output:
        h = rows.add(h, weights["hidden.bias"])
        active = activate(rows, h, dropout, 0)
        return Output(layers.linear(rows, active, weights["classifier.weight"], weights["classifier.bias"]), h)


def _operator(cohort: Cohort) -> SparseMatrix:
    """A of all clients, [R, R]."""
    made: SparseMatrix = cohort.once("normalised adjacency", lambda c: c.block_diagonal(_blocks(c)))
    return made


def _training_operator(cohort: Cohort) -> SparseMatrix:
    """The training nodes' rows of it, [T, R]."""
    made: SparseMatrix = cohort.once("training adjacency", lambda c: c.training.operator(_blocks(c)))
    return made


def _dense_features(cohort: Cohort) -> Tensor:
    """X of all clients, [R, F]."""
    raw: list[Any] = [m.graph.x for m in cohort.members]
    parts = [x.toarray() if sp.issparse(x) else np.asarray(x) for x in raw]
    return cohort.rows_of([torch.from_numpy(part.astype(np.float32)) for part in parts], 0.0)


def _blocks(cohort: Cohort) -> list[sp.csr_matrix]:
    return [m.once("normalised adjacency", lambda c: normalised(c).astype(np.float32)) for m in cohort.members]


def _scales(cohort: Cohort, order: int) -> Tensor:
    """s_k of every client: [M, K + 1]."""
    each = [m.once(("distance scales", order), lambda c: distance_scales(c, order)) for m in cohort.members]
    return torch.from_numpy(np.stack(each)).to(cohort.device)


def distance_scales(client: Client, order: int) -> np.ndarray:
    """||X|| / ||A^k X|| for k = 0 .. K (Frobenius norms), [K + 1] float32.

    Zero where nothing is left of X but rounding; ones where there is nothing to begin with (identities may still spread).

    ||A^k X||^2 is the sum over features, so that a few columns at a time need be dense.
    """
    a = normalised(client)
    x = sp.csc_matrix(client.graph.x, dtype=np.float64)
    if not x.count_nonzero():
        return np.ones(order + 1, dtype=np.float32)
    square = np.zeros(order + 1)
    for first in range(0, x.shape[1], COLUMNS):
        part = x[:, first : first + COLUMNS].toarray()
        for k in range(order + 1):
            square[k] += (part * part).sum()
            part = a @ part
    length = np.sqrt(square)
    heard = length > FAINT * length[0]
    return np.divide(length[0], length, out=np.zeros_like(length), where=heard).astype(np.float32)
