"""How reliable a client's knowledge of each class is, from its graph and its training labels (FedTAD)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.random_walks import return_chances

ENTRIES = 2**22  # products of features in memory at once


def node_reliability(client: Client, walks: int) -> np.ndarray:
    """How alike a node and its neighbours are, the mean cosine over its neighbours and itself: [n] float64.

    The cosine is of a node's features and its walks' return chances in one vector. Neighbours count by their edges' weights,
    the node itself by one.
    """
    (u, v), nodes = client.graph.edges, client.graph.nodes
    chances = client.once(("return chances", walks), lambda c: return_chances(c, walks))
    unit = sp.hstack([sp.csr_matrix(client.graph.x), sp.csr_matrix(chances)], format="csr").astype(np.float64)
    norm = np.sqrt(np.asarray(unit.multiply(unit).sum(1)).ravel())
    unit = sp.diags_array(1.0 / np.where(norm > 0, norm, 1.0)) @ unit
    cosine = np.empty(u.size)
    step = max(1, ENTRIES // unit.shape[1])
    for first in range(0, u.size, step):
        some = slice(first, first + step)
        cosine[some] = np.asarray(unit[u[some]].multiply(unit[v[some]]).sum(1)).ravel()
    weight = np.ones(u.size) if client.edge_weights is None else client.edge_weights.astype(np.float64)
    alike, total = np.ones(nodes), np.ones(nodes)
    for end in (u, v):
        alike += np.bincount(end, weight * cosine, minlength=nodes)
        total += np.bincount(end, weight, minlength=nodes)
    return alike / total


def class_reliability(cohort: Cohort, walks: int, classes: int) -> Tensor:
    """The sum of `node_reliability` over each client's training nodes of each class, computed once: [M, classes]."""

    def made(cohort: Cohort) -> Tensor:
        rows = []
        for client in cohort.members:
            own = client.training_nodes
            alike = client.once(("reliability", walks), lambda c: node_reliability(c, walks))
            rows.append(np.bincount(client.graph.y[own], alike[own], minlength=classes))
        return torch.from_numpy(np.stack(rows).astype(np.float32)).to(cohort.device)

    found: Tensor = cohort.once(("class reliability", walks), made)
    return found
