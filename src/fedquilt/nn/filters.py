"""A network with one hidden layer whose units look at the graph through learned polynomial filters, a client its own.

With A = D^-1/2 A D^-1/2 (no self-loops), features X and the hidden units in G groups of equal width, group g reads

    h_g = relu( sum_k c_gk s_k A^k (X W_g + E) + b_g ),   k = 0 .. K

and a linear classifier reads all of h. The coefficients c [G, K + 1] say what is far and near, alike and unlike; at the start
each group looks at one distance only, from a node itself (k = 0) to K steps away. s_k = ||X|| / ||A^k X|| makes all distances
equally loud: powers of A fade, and the more the less alike neighbours are. (The bases monomial and chebyshev, T_k(A) in place
of A^k, have s_k = 1.) E, where asked for, is a row of numbers for every
node: on graphs where *who* the neighbours are says more than what they look like.

Filters act on X W, or on X where features are fewer than hidden units: the narrower of the two is spread.

Memory: O(R H) for each power of a cohort of R rows; where X is spread, another copy of the features, and of their powers up to
CACHED bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.graphs import operators
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Output, Shapes, activate

Basis = Literal["scaled", "monomial", "chebyshev"]
FILTER, IDENTITY = "filter", "identity"
NODE_LAYER = 1  # which of a step's random numbers drop nodes
FAINT = 1e-6  # share of ||X|| under which A^k X is rounding error
COLUMNS = 128  # features that are dense at a time while their powers are measured
BUNCH = 2**14  # nodes of clients that are processed together before training
CACHED = 2**28  # bytes of powers of X that are cached between evaluations; others are computed each time

_cached_bytes: WeakKeyDictionary[Cohort, int] = WeakKeyDictionary()  # bytes of powers that each cohort caches


@dataclass(frozen=True)
class FilterNet:
    """The network as a description and a function of a cohort and its weights; it holds no state.

    Attributes:
        features, hidden, outputs: widths of the input, the hidden layer and the output.
        order: K. groups: G.
        identity: rows of the table E; a node takes that of its place in its client, modulo their number; 0: no table.
        node_dropout: share of the nodes whose input is dropped in a training step, before it spreads.
        basis: powers of A scaled to be equally loud, powers as they are, or Chebyshev polynomials.
    """

    features: int
    hidden: int
    outputs: int
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
            "classifier.weight": (self.hidden, self.outputs),
            "classifier.bias": (self.outputs,),
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
            return self._last(cohort, self._mixed(cohort, self._all_powers(cohort), terms, weights), weights, None)
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

    def _all_powers(self, cohort: Cohort) -> Tensor:
        """The powers for evaluation: cached, unless those of all cohorts in this process would exceed CACHED bytes."""
        size = 4 * cohort.rows * (self.order + 1) * self.features
        if cohort.device.type == "cpu" and cohort not in _cached_bytes and sum(_cached_bytes.values()) + size > CACHED:
            return self._powers(cohort)
        _cached_bytes[cohort] = size
        powers: Tensor = cohort.once(("powers", self.order, self.basis == "chebyshev"), self._powers)
        return powers

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
    made: SparseMatrix = cohort.once("normalised adjacency", lambda c: SparseMatrix(_laid(c)).to(c.device))
    return made


def _training_operator(cohort: Cohort) -> SparseMatrix:
    """The training nodes' rows of it, [T, R]."""
    made: SparseMatrix = cohort.once("training adjacency", lambda c: c.training.chosen(_laid(c)))
    return made


def _laid(cohort: Cohort) -> sp.csr_matrix:
    """A of all clients in the cohort's rows, [R, R] float32."""
    a = side_by_side(cohort.members)
    return cohort.padded(a.data.astype(np.float32), cohort.taken[a.indices], np.diff(a.indptr), cohort.rows)


def side_by_side(clients: Sequence[Client]) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2 without self-loops of all their graphs, one after the other: [n, n] float64, n all their nodes."""
    edges = [client.graph.edges for client in clients]
    sizes = np.array([client.graph.nodes for client in clients])
    shift = np.repeat(np.cumsum(sizes) - sizes, [each.shape[1] for each in edges])
    a = operators.adjacency(np.concatenate(edges, axis=1) + shift, int(sizes.sum()))
    degree = np.diff(a.indptr)
    scale = 1.0 / np.sqrt(np.maximum(degree, 1))
    return sp.csr_matrix((np.repeat(scale, degree) * scale[a.indices], a.indices, a.indptr), shape=a.shape)


def features_of(clients: Sequence[Client]) -> Any:
    """X of all of them, one after the other: [n, F], sparse (in columns) where any client's is."""
    raw: list[Any] = [client.graph.x for client in clients]
    if any(map(sp.issparse, raw)):
        return sp.vstack([sp.csr_matrix(x) for x in raw]).tocsc()
    return raw[0] if len(raw) == 1 else np.concatenate(raw)


def _dense_features(cohort: Cohort) -> Tensor:
    """X of all clients, [R, F]."""
    raw: list[Any] = [m.graph.x for m in cohort.members]
    parts = [np.asarray(x.toarray() if sp.issparse(x) else x, dtype=np.float32) for x in raw]
    return cohort.rows_of([torch.from_numpy(part) for part in parts], 0.0)


def bunches(clients: Sequence[Client]) -> Iterator[Sequence[Client]]:
    """The clients in their order, as many at a time as have BUNCH nodes together, or one with more."""
    first, nodes = 0, 0
    for place, client in enumerate(clients):
        if place > first and nodes + client.graph.nodes > BUNCH:
            yield clients[first:place]
            first, nodes = place, 0
        nodes += client.graph.nodes
    yield clients[first:]


def of_each_once(cohort: Cohort, name: Hashable, make: Callable[[Sequence[Client]], np.ndarray]) -> Tensor:
    """What `make` computes for a list of clients, a row a client: [M, ...] float32 on the cohort's device.

    Rows are stored with the clients; where some client has none yet, all are computed, a bunch at a time.
    """

    @cache
    def made() -> np.ndarray:
        return np.concatenate([make(some) for some in bunches(cohort.members)]).astype(np.float32)

    def row(m: int) -> Callable[[Client], np.ndarray]:
        return lambda _: made()[m]

    each = [client.once(name, row(m)) for m, client in enumerate(cohort.members)]
    return torch.from_numpy(np.stack(each)).to(cohort.device)


def _scales(cohort: Cohort, order: int) -> Tensor:
    """s_k of every client: [M, K + 1]."""
    return of_each_once(cohort, ("distance scales", order), lambda some: _distance_scales(some, order))


def distance_scales(client: Client, order: int) -> np.ndarray:
    """||X|| / ||A^k X|| for k = 0 .. K (Frobenius norms), [K + 1] float32.

    Zero where nothing is left of X but rounding; ones where there is nothing to begin with (identities may still spread).
    """
    scales: np.ndarray = _distance_scales([client], order)[0]
    return scales


def _distance_scales(clients: Sequence[Client], order: int) -> np.ndarray:
    """The same of several clients: [M, K + 1] float32.

    ||A^k X||^2 is the sum over features, so that a few columns at a time need be dense.
    """
    a, x = side_by_side(clients), features_of(clients)
    first = np.cumsum([0, *(client.graph.nodes for client in clients[:-1])])
    square = np.zeros((len(clients), order + 1))
    for column in range(0, x.shape[1], COLUMNS):
        part = x[:, column : column + COLUMNS].astype(np.float64)
        part = part.toarray() if sp.issparse(part) else part
        for k in range(order + 1):
            square[:, k] += np.add.reduceat(np.einsum("nf,nf->n", part, part), first)
            part = a @ part
    length = np.sqrt(square)
    heard = length > FAINT * length[:, :1]
    scales = np.divide(length[:, :1], length, out=np.zeros_like(length), where=heard)
    scales[square[:, 0] == 0] = 1.0
    return scales.astype(np.float32)
