"""A network's outputs at all nodes of graphs that are too large to be computed at once, without dropout.

Networks of graph layers (`LayeredModel`: gcn, sage, gat, gin, mlp) are computed layer by layer, and each layer part by part:
the nodes of a part with all of their neighbours (`fedquilt.cohort.surroundings`). The outputs are those of the whole graph. Any
other network is computed on the whole graph, one client at a time, and nothing of it is kept.

Memory, beside a part: the outputs of one layer and of the one before at all nodes, 8 R H bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.surroundings import Surroundings, rows_at, surroundings
from fedquilt.nn.layers import Weights
from fedquilt.nn.model import LayeredModel, Network, Output, part


def outputs_in_parts(model: Network, cohort: Cohort, weights: Weights, nodes: int, embedding: bool = True) -> Output:
    """What `model(cohort, weights)` gives, up to rounding; zeros in rows of padding.

    Args:
        model: the network.
        cohort: the clients with their whole graphs.
        weights: of every client, [M, ...].
        nodes: about how many nodes of each client are computed at once.
        embedding: whether embeddings are asked for; else they have no columns.
    """
    if isinstance(model, LayeredModel):
        return _by_layers(model, cohort, weights, nodes, embedding)
    return _by_clients(model, cohort, weights)


def _by_layers(model: LayeredModel, cohort: Cohort, weights: Weights, nodes: int, embedding: bool) -> Output:
    z, logits = _Gathered(cohort), _Gathered(cohort)
    for layer in range(1, model.layers + 1):
        before, z, last = z.rows, _Gathered(cohort), layer == model.layers
        for some in surroundings(cohort, nodes, features=layer == 1):
            own = {name: w.index_select(0, some.chosen.to(w.device)) for name, w in weights.items()}
            out = _layer(model, some, before, own, layer)
            if last:
                logits.add(some, model.classify(some, torch.relu(out), own))
            if embedding or not last:
                z.add(some, out)
    return Output(logits.rows, z.rows)


class _Gathered:
    """Rows [R, H] of a cohort that are filled in part by part; zeros where there is nothing."""

    def __init__(self, cohort: Cohort) -> None:
        self.rows = torch.zeros(cohort.rows, 0, device=cohort.device)

    def add(self, some: Surroundings, rows: Tensor) -> None:
        """Fill in the inner rows of a part, [r, H]."""
        if self.rows.shape[1] != rows.shape[1]:
            self.rows = rows.new_zeros(len(self.rows), rows.shape[1])
        inner = rows.index_select(0, some.inner)
        if inner.requires_grad or self.rows.requires_grad:
            self.rows = self.rows.index_copy(0, some.target, inner)
        else:
            self.rows.index_copy_(0, some.target, inner)


def _layer(model: LayeredModel, some: Surroundings, before: Tensor, weights: Weights, layer: int) -> Tensor:
    """One graph layer before its ReLU, of which only the inner rows mean anything: [r, H]."""
    own = part(weights, f"conv{layer}.")
    return model.first(some, own) if layer == 1 else model.second(some, torch.relu(rows_at(some, before)), own)


def _by_clients(model: Network, cohort: Cohort, weights: Weights) -> Output:
    found = []
    for m, client in enumerate(cohort.members):
        alone = Cohort([client], cohort.device)
        found.append(model(alone, {name: w[m : m + 1] for name, w in weights.items()}))
        alone.release()
    logits = cohort.laid([output.logits for output in found], 0.0)
    return Output(logits, cohort.laid([output.embedding for output in found], 0.0))
