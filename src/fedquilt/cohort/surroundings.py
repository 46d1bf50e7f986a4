"""`Surroundings`: some nodes of each client with all of their neighbours, so that one graph layer is exact at these nodes.

A layer reads a node's neighbours and, where it is normalised, their degrees in the whole graph. So outputs at all nodes can be
computed layer by layer and part by part, and are those of the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import joined_weights
from fedquilt.cohort.clusters import clusters_of
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.graphs import operators


class Surroundings(Cohort):
    """Parts of the graphs of some of a cohort's clients.

    Only the `inner` rows have all of their edges; what is computed at the others means nothing.

    Attributes:
        chosen: the places of the clients in the whole cohort.
        outer: [R] the row in the whole cohort of each row; of padding: some row.
        inner: the rows of the nodes of the part. target: their rows in the whole cohort.
    """

    fleeting = True

    def __init__(self, whole: Cohort, nodes: int, number: int, features: bool) -> None:
        """Of each client the part of this number, of about so many nodes (`Clusters.part`)."""
        clusters = [clusters_of(client, nodes) for client in whole.members]
        chosen = [m for m, own in enumerate(clusters) if own.parts > number]
        parts = [clusters[m].surroundings(clusters[m].part(number), features) for m in chosen]
        super().__init__([client for client, _, _ in parts], whole.device, whole.padding)
        self.chosen = torch.tensor(chosen)
        self._nodes = [(clusters[m], numbers) for (_, numbers, _), m in zip(parts, chosen, strict=True)]
        rows = [torch.from_numpy(numbers + whole.start[m]) for (_, numbers, _), m in zip(parts, chosen, strict=True)]
        self.outer = self.rows_of(rows, 0)
        inner = np.concatenate([places + first for (_, _, places), first in zip(parts, self.start, strict=True)])
        self.inner = torch.from_numpy(inner).to(self.device)
        self.target = self.outer[self.inner]

    @cached_property
    def gcn(self) -> SparseMatrix:
        """D^-1/2 (A + I) D^-1/2 with the degrees of the whole graph, [R, R]."""
        degrees = np.ones(self.rows)
        degrees[self.taken] = np.concatenate([clusters.degrees[numbers] for clusters, numbers in self._nodes])
        weights = joined_weights(self.members)
        return SparseMatrix(operators.gcn(self._joined(), self.rows, self.taken, weights, degrees)).to(self.device)


def surroundings(cohort: Cohort, nodes: int, features: bool) -> Iterator[Surroundings]:
    """Parts of about so many nodes of each client, with their neighbours: each node of the cohort is inner in one of them.

    Without `features` they have none: those of a later layer are the outputs of the layer before. A part is released before the
    next one is made.
    """
    for number in range(max(clusters_of(client, nodes).parts for client in cohort.members)):
        part = Surroundings(cohort, nodes, number, features)
        yield part
        part.release()


def rows_at(part: Surroundings, rows: Tensor) -> Tensor:
    """The rows of a part, of a tensor over the rows of the whole cohort: [R, H] -> [r, H]."""
    return rows.index_select(0, part.outer)
