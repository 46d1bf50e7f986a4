"""natural: clients that the dataset itself defines."""

from __future__ import annotations

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.groups import groups
from fedquilt.partition.kind import Drawn, Option, register_kind


@register_kind(
    "natural",
    "clients given by a label for each node",
    options=[Option("labels", np.ndarray, "[N] whole numbers, the client of each node")],
    clients="found",
    natural=True,
    seeded=False,
    # The clients of the synthetic datasets are small: a split may leave one without a training node.
    min_train=1,
)
def natural(graph: Graph, clients: int | None, seed: int, labels: np.ndarray | None = None) -> Drawn:
    """Make a client of all nodes with the same label, in the order of the labels."""
    if labels is None:
        raise FedquiltError("A natural partition needs 'labels', whose client each node is; give them.")
    owner = np.asarray(labels)
    if owner.shape != (graph.nodes,) or owner.dtype.kind not in "iu":
        raise FedquiltError(
            f"The labels of a natural partition must be {graph.nodes} whole numbers, one for each node of "
            f"graph '{graph.name}', not {owner.dtype} of shape {owner.shape}; give such an array."
        )
    if owner.min() < 0:
        raise FedquiltError("Each node of a natural partition needs a client; give a label of 0 or more to each node.")
    names, numbered = np.unique(owner, return_inverse=True)
    if clients not in (None, names.size):
        raise FedquiltError(
            f"The labels name {names.size} clients, not {clients}; leave the number of clients out or correct it."
        )
    return groups(numbered, names.size), {}
