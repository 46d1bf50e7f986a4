"""Structure embeddings: what a node's surroundings look like, whatever its features.

The chance that a random walk from node v is back at v after k steps is the diagonal of (A D^-1)^k. A D^-1 is similar to the
symmetric N = D^-1/2 A D^-1/2, so that with r_a = N^a e_v the chance is r_a . r_a for k = 2 a and r_a . r_{a+1} for
k = 2 a + 1: half of the products suffice. Some nodes are walked from at a time, so that no n x n matrix is held.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.common.random_streams import numpy_stream
from fedquilt.graphs import operators

ENTRIES = 2**22  # numbers of a block of walks that are in memory at once: 16 MB

Structure = Literal["both", "walks", "degrees", "shuffled", "none"]


def return_chances(client: Client, steps: int) -> np.ndarray:
    """The chance of a walk from each node to be back after 1 .. `steps` steps, by edge weights: [n, steps] float32."""
    nodes = client.graph.nodes
    walk = operators.symmetric_normalised(client.graph.edges, nodes, client.edge_weights).astype(np.float32)
    out = np.empty((nodes, steps), dtype=np.float32)
    block = max(1, ENTRIES // max(nodes, 1))
    for first in range(0, nodes, block):
        own = np.arange(first, min(first + block, nodes))
        at = np.zeros((nodes, own.size), dtype=np.float32)
        at[own, np.arange(own.size)] = 1.0
        for step in range(1, steps + 1, 2):
            after = walk @ at
            out[own, step - 1] = np.einsum("ij,ij->j", at, after)
            if step < steps:
                out[own, step] = np.einsum("ij,ij->j", after, after)
            at = after
    return out


def degrees_one_hot(client: Client, most: int) -> np.ndarray:
    """One-hot numbers of neighbours, of which less than 1 count as 1 and more than `most` as `most`: [n, most] float32."""
    degree = np.bincount(client.graph.edges.ravel(), minlength=client.graph.nodes)
    return np.eye(most, dtype=np.float32)[np.clip(degree, 1, most) - 1]


def embedding_of(client: Client, walks: int, degrees: int, kind: Structure) -> np.ndarray:
    """A client's structure embeddings, [n, walks + degrees]: return chances, then degrees; what `kind` leaves out is zero.

    `shuffled` gives every node the embedding of another one of the client, for a permutation test.
    """
    nodes = client.graph.nodes
    out = np.zeros((nodes, walks + degrees), dtype=np.float32)
    if kind not in ("degrees", "none"):
        out[:, :walks] = client.once(("return chances", walks), lambda c: return_chances(c, walks))
    if kind not in ("walks", "none"):
        out[:, walks:] = degrees_one_hot(client, degrees)
    return out[numpy_stream(0, "structure", client.id).permutation(nodes)] if kind == "shuffled" else out


def structure_embeddings(cohort: Cohort, walks: int, degrees: int, kind: Structure) -> Tensor:
    """The same for all clients of a cohort, computed once: [R, walks + degrees]; zero in padding."""

    def made(cohort: Cohort) -> Tensor:
        each = [torch.from_numpy(embedding_of(client, walks, degrees, kind)) for client in cohort.members]
        return cohort.rows_of(each, 0.0)

    found: Tensor = cohort.once(("structure embeddings", walks, degrees, kind), made)
    return found
