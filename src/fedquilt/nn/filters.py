"""A network with one hidden layer whose units apply learned polynomial graph filters; each client has its own filters.

With A = D^-1/2 A D^-1/2 (no self-loops; weighted where edges have weights), features X and the hidden units in G groups of
equal width, group g computes

    h_g = relu( sum_k c_gk s_k A^k (X W_g + E) + b_g ),   k = 0 .. K

and a linear classifier reads all of h. The coefficients c [G, K + 1] weight the distances: k = 0 is the node itself, k = K
are nodes K steps away. Initially each of several groups uses one distance only. s_k = ||X|| / ||A^k X|| gives all distances
the same norm: powers of A shrink the signal, the more so the less similar neighbours are. (The bases
monomial and chebyshev, the latter with T_k(A) in place of A^k, have s_k = 1.) E is optional: a learned row for every node, for
graphs where the identity of the neighbours tells more than their features.

Filters are applied to X W, or to X where it is not wider than the hidden layer and there is no E.

Memory: O(R H) for each power of a cohort of R rows. Where filters are applied to X, another copy of the features, and up to
CACHED bytes of their powers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.client import Client, joined_weights
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
NODE_LAYER = 1  # the `layer` of the draws that drop nodes; see `Draws`
FAINT = 1e-6  # if ||A^k X|| is below this share of ||X||, it is rounding error
COLUMNS = 128  # how many features are made dense at a time to compute the norms of their powers
BUNCH = 2**14  # how many nodes are processed at a time before training
CACHED = 2**28  # bytes of powers of X that are cached between evaluations; others are computed each time

_cached_bytes: WeakKeyDictionary[Cohort, int] = WeakKeyDictionary()  # bytes of powers that each cohort caches


@dataclass(frozen=True)
class FilterNet:
    """The network: the shapes of its weights, and its outputs as a function of a cohort and weights. It holds no state.

    Attributes:
        features, hidden, outputs: widths of the input, the hidden layer and the output.
        order: K. groups: G.
        identity: number of rows of the table E; node i of a client uses row i modulo this number. 0: no table.
        node_dropout: share of the nodes whose input is dropped in a training step, before filtering.
        basis: powers of A scaled by s_k, unscaled powers, or Chebyshev polynomials.
    """

    features: int
    hidden: int
    outputs: int
    order: int
    groups: int
    identity: int
    node_dropout: float
    basis: Basis = "scaled"

    feature_weights: ClassVar[tuple[str, ...]] = ("hidden.weight",)

    def shapes(self) -> Shapes:
        """The shapes of the weights that clients can share, by name, without the leading client axis."""
        return {
            "hidden.weight": (self.features, self.hidden),
            "hidden.bias": (self.hidden,),
            "classifier.weight": (self.hidden, self.outputs),
            "classifier.bias": (self.outputs,),
        }

    def private_start(self, some: Tensor) -> Weights:
        """Return the initial private weights (coefficients and the table E) for M clients, on the device of `some` [M, ...]."""
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
        """Compute the logits of every row, and the hidden layer before its ReLU, without dropout."""
        terms = self._terms(cohort, weights)
        if self._narrow:
            return self._last(cohort, self._mixed(cohort, self._all_powers(cohort), terms, weights), weights, None)
        near, far = self._sums(cohort, self._input(cohort, weights), terms)
        return self._last(cohort, near + _operator(cohort) @ far, weights, None)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the same with dropout, at the training nodes only (the rows of `cohort.training`), which costs less."""
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
        """Whether filters are applied to X, not to X W + E: X is not wider, there is no E, and X needs no gradient."""
        return self.features <= self.hidden and not self.identity

    def _all_powers(self, cohort: Cohort) -> Tensor:
        """Return the powers for evaluation. They are cached while all cohorts of this process cache at most CACHED bytes."""
        size = 4 * cohort.rows * (self.order + 1) * self.features
        if cohort.device.type == "cpu" and cohort not in _cached_bytes and sum(_cached_bytes.values()) + size > CACHED:
            return self._powers(cohort)
        _cached_bytes[cohort] = size
        powers: Tensor = cohort.once(("powers", self.order, self.basis == "chebyshev"), self._powers)
        return powers

    @torch.no_grad()
    def _powers(self, cohort: Cohort, keep: Tensor | None = None) -> Tensor:
        """Concatenate B_0(A) X .. B_K(A) X to [R, (K + 1) F]. X is first multiplied by `keep` [R, 1], which drops nodes."""
        a, twice = _operator(cohort), self.basis == "chebyshev"
        x: Tensor = cohort.once("dense features", _dense_features)
        out = [x if keep is None else x * keep]
        for k in range(1, self.order + 1):
            spread = a @ out[-1]
            out.append(2.0 * spread - out[-2] if twice and k > 1 else spread)
        return torch.cat(out, dim=1)

    def _mixed(self, rows: Rows, powers: Tensor, terms: list[Tensor], weights: Weights) -> Tensor:
        """Compute sum_k terms_k B_k(A) X W in one product: [R, (K + 1) F] -> [R, H]."""
        scaled = torch.stack(terms, dim=1).unsqueeze(2) * weights["hidden.weight"].unsqueeze(1)
        return rows.multiply(powers, scaled.flatten(1, 2))

    def _terms(self, cohort: Cohort, weights: Weights) -> list[Tensor]:
        """Compute c_gk s_k for each k; all units of a group have the same value. Returns K + 1 tensors [M, H]."""
        scaled = weights[FILTER].transpose(1, 2)
        if self.basis == "scaled":
            scales: Tensor = cohort.origin.once(("distance scales", self.order), lambda c: _scales(c, self.order))
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
        """Return near, far [R, H] with near + A far = sum_k terms_k B_k(A) z, by Horner's rule (Clenshaw's for Chebyshev's).

        Takes K - 1 products of width H. The caller computes the last one, A far, possibly for some rows only.
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
    """The training nodes' rows of `_operator`, [T, R]."""
    made: SparseMatrix = cohort.once("training adjacency", lambda c: c.training.chosen(_laid(c)))
    return made


def _laid(cohort: Cohort) -> sp.csr_matrix:
    """A of all clients in the cohort's rows, [R, R] float32."""
    a = side_by_side(cohort.members)
    return cohort.padded(a.data.astype(np.float32), cohort.taken[a.indices], np.diff(a.indptr), cohort.rows)


def side_by_side(clients: Sequence[Client]) -> sp.csr_matrix:
    """The block-diagonal D^-1/2 A D^-1/2 (no self-loops) of the clients' graphs: [n, n] float64, n the sum of their nodes."""
    edges = [client.graph.edges for client in clients]
    sizes = np.array([client.graph.nodes for client in clients])
    shift = np.repeat(np.cumsum(sizes) - sizes, [each.shape[1] for each in edges])
    joined = np.concatenate(edges, axis=1) + shift
    return operators.symmetric_normalised(joined, int(sizes.sum()), joined_weights(clients))


def features_of(clients: Sequence[Client]) -> Any:
    """Concatenate X of all clients: [n, F], sparse (CSC) where any client's is."""
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
    """Yield the clients in their order, in groups of at most BUNCH nodes; a larger client is a group of its own."""
    first, nodes = 0, 0
    for place, client in enumerate(clients):
        if place > first and nodes + client.graph.nodes > BUNCH:
            yield clients[first:place]
            first, nodes = place, 0
        nodes += client.graph.nodes
    yield clients[first:]


def of_each_once(cohort: Cohort, name: Hashable, make: Callable[[Sequence[Client]], np.ndarray]) -> Tensor:
    """Return the rows that `make` computes, one per client: [M, ...] float32 on the cohort's device.

    Each row is stored with its client. If any client has none yet, `make` is called for all clients, one bunch at a time.
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
    """Compute s_k = ||X|| / ||A^k X|| for k = 0 .. K (Frobenius norms), [K + 1] float32.

    s_k is 0 where A^k X is only rounding error. All are 1 where X is zero, because E may still be filtered.
    """
    scales: np.ndarray = _distance_scales([client], order)[0]
    return scales


def _distance_scales(clients: Sequence[Client], order: int) -> np.ndarray:
    """Compute the same for several clients: [M, K + 1] float32.

    ||A^k X||^2 is a sum over features, so only COLUMNS columns need to be dense at a time.
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


def unit_factors(factor: Tensor, hidden: int) -> Tensor:
    """The factors of each group of units as those of each unit: [M, F, G] -> [M, F, H], or as they are where G is one.

    One product with all units takes half of the time of a product for each group, whose units do not lie side by side.
    """
    groups = factor.shape[-1]
    if groups == 1:
        return factor
    first = [-(-group * hidden // groups) for group in range(groups + 1)]
    counts = [after - before for before, after in itertools.pairwise(first)]
    return torch.cat([one.expand(-1, -1, count) for one, count in zip(factor.split(1, 2), counts, strict=True)], dim=2)
