"""Neighbourhood routing of graphs in which no node has many neighbours, by the products of vectors that meet at a node.

The scores of `fedquilt.nn.routing` are products of a neighbour's vector with a sum of vectors, so they are sums of products of
two vectors: with w p for the weights of that sum,

    z_v . c_u = (z_v . z_u + sum_x w_ux p_ux z_v . z_x) / |c_u|
    |c_u|^2   = z_u . z_u + sum_v w_uv p_uv (z_v . z_u + |c_u| z_v . c_u)

where v and x are neighbours of u. The products z_v . z_x do not change from iteration to iteration. They are computed once, and
an iteration takes as many operations a neighbour as there are neighbours, whatever the width of the vectors.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.nn.edges import Edges, Links, Scores

MOST = 12  # products that meet at a node for each of its edges, up to which memory stays within that of edges times factors
SMALLEST = 1e-12  # a smaller square of a length counts as this


class Meetings:
    """Which pairs of vectors meet at the nodes of a graph with edges in K factors.

    With D neighbours of a node at most, a place is a node u and a number i < D, for its i-th neighbour; there are D n places.

    Memory: 4 D^2 bytes per row, and 24 per pair of nodes with a common neighbour and factor.
    """

    def __init__(self, edges: Edges, factors: int) -> None:
        rows, count = edges.rows // factors, edges.count // factors
        source, target = (side[:count].cpu().numpy().astype(np.int64) for side in (edges.source, edges.target))
        degree = np.bincount(source, minlength=rows)
        self.factors, self.rows, self.most = factors, rows, int(degree.max())
        place = np.arange(count) - np.repeat(np.cumsum(degree) - degree, degree)
        neighbour = np.full((self.most, rows), -1)
        neighbour[place, source] = target
        self._back = torch.from_numpy(place * rows + source).int()
        self._weight = None
        if edges.weight is not None:
            self._weight = torch.zeros(self.most * rows).index_copy_(0, self._back.long(), edges.weight)

        joined = sp.csr_matrix((np.ones(count, np.int8), (source, target)), shape=(rows, rows)).astype(bool)
        meeting = sp.triu(joined @ joined + joined + sp.eye(rows, dtype=bool, format="csr"), format="coo")
        key = np.sort(meeting.row.astype(np.int64) * rows + meeting.col)
        self._pairs = _repeated(key // rows, key % rows, rows, factors)
        own = np.broadcast_to(np.arange(rows), neighbour.shape)
        sides = [(neighbour[: self.most - apart], neighbour[apart:]) for apart in range(self.most)]
        found = [_found(key, rows, *pair) for pair in [*sides, (neighbour, own), (own[:1], own[:1])]]
        self._places = [len(each) for each in found]
        self._index = torch.from_numpy(np.concatenate(found).ravel()).int()

    def assignments(self, z: Tensor, iterations: int, temperature: float) -> Tensor:
        """Return the assignments p of the last iteration: z [K n, d], of length one or zero -> [K E]."""
        factors, rows, most = self.factors, self.rows, self.most
        products = Scores(self._pairs, z)(z).view(factors, -1)
        products[:, -1] = 0.0
        found = products.index_select(1, self._index).view(factors, -1, rows)
        # Of the i-th and the j-th neighbour where j - i is 0, 1, ..., of a neighbour and the node, of the node and itself.
        equal, *met, near, own = found.split(self._places, dim=1)
        total, both, p = (torch.empty_like(near) for _ in range(3))
        steps = [
            (total[:, max(0, i) : most + min(0, i)], met[abs(i) - 1], p[:, max(0, -i) : most + min(0, -i)])
            for i in range(1 - most, most)
            if i
        ]
        _softmax(near, temperature, p)
        for _ in range(iterations - 1):
            if self._weight is not None:
                p *= self._weight.view(most, rows)
            torch.addcmul(near, equal, p, out=total)
            for sums, each, shares in steps:
                sums.addcmul_(each, shares)
            square = torch.add(total, near, out=both).mul_(p).sum(1, keepdim=True).add_(own)
            total *= square.clamp_min_(SMALLEST).rsqrt_()
            _softmax(total, temperature, p)
        return p.view(factors, -1).index_select(1, self._back).flatten()


def meetings(edges: Edges, factors: int) -> Meetings | None:
    """The meetings of a graph; None where a node has so many neighbours that there would be too many."""
    rows, count = edges.rows // factors, edges.count // factors
    most = int(torch.bincount(edges.source[:count], minlength=rows).max()) if count else 0
    return Meetings(edges, factors) if most and most**2 * rows <= MOST * count else None


def _repeated(first: np.ndarray, second: np.ndarray, rows: int, factors: int) -> Links:
    """Pairs in every factor, and after them one more that stands for pairs that are not there."""
    shift = rows * np.arange(factors)[:, None]
    u, v = (torch.from_numpy((np.append(side, rows - 1) + shift).ravel()) for side in (first, second))
    return Links(u, v, factors * rows)


def _found(key: np.ndarray, rows: int, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """The index of each pair of nodes in `key`, or its length where one of them is -1."""
    index = np.searchsorted(key, np.minimum(one, two) * rows + np.maximum(one, two))
    return np.where(np.minimum(one, two) < 0, len(key), index)


def _softmax(score: Tensor, temperature: float, out: Tensor) -> None:
    torch.softmax(score if temperature == 1.0 else score / temperature, dim=0, out=out)
