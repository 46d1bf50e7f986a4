"""Copies: nodes that are equal in what a model reads of them, so that one in training gives away the label of another.

Squirrel and Chameleon are the known cases: half of their nodes have exactly the neighbours of another node, and 99 % of such
pairs have the same label. A model that is trained on one of them is right about the other without having learned anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.sparse as sp

from fedquilt.graphs.arrays import as_sparse
from fedquilt.graphs.graph import Graph

CopyKind = Literal["neighbours", "features", "both"]


def with_copies(graph: Graph, keep: CopyKind | Literal["never"] | None) -> Graph:
    """The graph with the copies that a split is to keep in one part; None: those that the graph came with."""
    if keep is None:
        return graph
    return replace(graph, copies=None if keep == "never" else find_copies(graph, keep))


def find_copies(graph: Graph, kind: CopyKind) -> np.ndarray:
    """Number the nodes so that copies have the same number: [N] int64, for `Graph.copies`.

    Args:
        graph: the graph.
        kind: copies have the same "neighbours", the same "features", or ("both") are joined by a chain of such pairs of
            either kind.
    """
    if kind == "neighbours":
        return equal_neighbours(graph)
    features = equal_rows(as_sparse(graph.x))
    return features if kind == "features" else _joined(features, equal_neighbours(graph))


def equal_neighbours(graph: Graph) -> np.ndarray:
    """Number the nodes so that those with exactly the same neighbours have the same number: [N] int64.

    A node without a neighbour has a number of its own. Time and memory are linear in nodes and edges.
    """
    adjacency = graph.adjacency()
    numbers = equal_rows(adjacency)
    isolated = np.diff(adjacency.indptr) == 0
    numbers[isolated] = graph.nodes + np.arange(isolated.sum())
    return _renumbered(numbers)


def equal_rows(x: sp.csr_matrix) -> np.ndarray:
    """Number the rows so that equal rows have the same number, in order of first appearance: [N, F] -> [N] int64."""
    x = x.copy()
    x.sum_duplicates()
    x.eliminate_zeros()
    numbers: dict[tuple[bytes, bytes], int] = {}
    ends = zip(x.indptr[:-1], x.indptr[1:], strict=True)
    keys = ((x.indices[a:b].tobytes(), x.data[a:b].tobytes()) for a, b in ends)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The finest numbering [N] under which nodes that are equal in either one have the same number."""
    from scipy.sparse.csgraph import connected_components

    joint = (first, first.max() + 1 + second)
    size = int(joint[1].max()) + 1
    pairs = sp.csr_matrix((np.ones(len(first), dtype=np.int8), joint), shape=(size, size))
    return _renumbered(connected_components(pairs, directed=False)[1][first])


def _renumbered(numbers: np.ndarray) -> np.ndarray:
    """The same groups, numbered 0, 1, ... in order of first appearance."""
    _, first, group = np.unique(numbers, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[group]


@dataclass(frozen=True)
class CopyReport:
    """How much the copies of one kind give away, over the labelled nodes.

    Attributes:
        kind: what is equal, "neighbours" or "features".
        share: the share of the labelled nodes that have a labelled copy.
        agreement: how often a copy of such a node has its label, a mean over these nodes; NaN without copies.
        reference: how often a node that is no copy would have it: for neighbours, one that is two steps away (a random walk's
            end); for features, another one of these nodes.
    """

    kind: CopyKind
    share: float
    agreement: float
    reference: float

    @property
    def gives_away(self) -> bool:
        """Whether a random split of the nodes would mislead: copies are a tenth of the nodes or more, and trusting a copy
        makes less than half of the errors that trusting the reference makes.

        Leaves of one hub have the same neighbours too, and so have nodes with the same few words; they agree as often as
        other nodes nearby do. On Cora, CiteSeer, PubMed, Actor, Tolokers and others this is False, see `fedquilt docs data`.
        """
        return self.share >= 0.1 and 1 - self.agreement < 0.5 * (1 - self.reference)


def describe_copies(graph: Graph, kind: CopyKind) -> CopyReport:
    """Find the copies of one kind and compare their labels."""
    copies, labelled = find_copies(graph, kind), graph.y >= 0
    y = np.where(labelled, graph.y, 0)
    indicator = sp.csr_matrix(
        (labelled.astype(np.float64), (np.arange(graph.nodes), y)), shape=(graph.nodes, max(graph.classes, 1))
    )
    # Labelled nodes by group and class. Sparse: groups times classes can be far more than there are nodes.
    places = (copies[labelled], y[labelled])
    counts = sp.csr_matrix((np.ones(labelled.sum()), places), shape=(int(copies.max()) + 1, indicator.shape[1]))
    size = np.asarray(counts.sum(axis=1)).ravel()[copies]
    same = np.asarray(counts[copies, y]).ravel()
    has = labelled & (size > 1)
    if not has.any():
        return CopyReport(kind, 0.0, float("nan"), float("nan"))
    agreement = float(((same[has] - 1) / (size[has] - 1)).mean())
    chance = float((np.bincount(y[has]) ** 2).sum() / has.sum() ** 2)
    reference = _two_steps_away(graph, indicator, same, size, has, chance) if kind == "neighbours" else chance
    return CopyReport(kind, float(has.sum() / labelled.sum()), agreement, reference)


def _two_steps_away(
    graph: Graph, indicator: sp.csr_matrix, same: np.ndarray, size: np.ndarray, nodes: np.ndarray, otherwise: float
) -> float:
    """How often the end of a walk of two steps, to a labelled node that is no copy, has the label of its start.

    With adjacency A and labels Y [N, C] there are (A A Y)[v, c] such walks from v to class c, the sum of (A Y)[u, c] over the
    neighbours u of v. Walks to copies of v (and back to v itself) are taken off: there are deg(v) to each, as they have the
    same neighbours.
    """
    adjacency = graph.adjacency().astype(np.float64)
    degree = np.diff(adjacency.indptr)
    step = sp.csr_matrix(adjacency @ indicator)
    # Only the class of each start is looked up: all classes of all nodes would not fit into memory.
    start, label = np.repeat(np.arange(graph.nodes), degree), np.where(graph.y >= 0, graph.y, 0)
    walks = np.asarray(step[adjacency.indices, label[start]]).ravel() if start.size else np.zeros(0)
    alike = np.bincount(start, weights=walks, minlength=graph.nodes) - degree * same
    all_walks = adjacency @ np.asarray(step.sum(axis=1)).ravel() - degree * size
    known = nodes & (all_walks > 0)
    return float((alike[known] / all_walks[known]).mean()) if known.any() else otherwise
