"""A personal model as a `torch.nn.Module`: the method's own network over a cohort of one.

There is one implementation of a network, the method's. A method needs to write nothing for it to be exported.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.arrays import undirected
from fedquilt.graphs.graph import Features, Graph
from fedquilt.methods.personal_model import Personal


class PersonalModule(nn.Module):
    """A personal model that maps PyTorch Geometric's `Data` to logits; it can be trained further.

    Parameters have the names of the personal model's weights and no client axis; matrices are [in, out]. Edges are
    undirected: direction, repetition and self-loops do not matter. The logits are differentiable in the parameters as far as
    the method's are, and constant in x.

    The module keeps what it computed of the graph that it was called with last, so that training it further costs no more than
    training did.

    Attributes:
        personal: the model with its method and the facts about it. Its weights are those at the start; `state_dict` has those
            of now.
        class_names: the names of the C classes, where they have names.
    """

    def __init__(self, personal: Personal) -> None:
        super().__init__()
        personal.check()
        self.personal = personal
        self.class_names = personal.class_names
        for name, tensor in personal.weights.items():
            *path, last = name.split(".")
            inner: nn.Module = self
            for part in path:
                if part not in dict(inner.named_children()):
                    inner.add_module(part, nn.Module())
                inner = inner.get_submodule(part)
            own = tensor.detach().cpu().clone()
            if own.is_floating_point():
                inner.register_parameter(last, nn.Parameter(own))
            else:
                inner.register_buffer(last, own)
        self._last: tuple[Any, Cohort] | None = None
        self.eval()

    def forward(self, data: Any, edge_index: Tensor | None = None) -> Tensor:
        """The logits of every node, [n, C].

        Args:
            data: an object with `x` [n, F], dense or sparse, and `edge_index` [2, E]; or x itself.
            edge_index: where `data` is x.
        """
        x, edges = (data.x, data.edge_index) if edge_index is None else (data, edge_index)
        weights = {name: tensor.unsqueeze(0) for name, tensor in self.state_dict(keep_vars=True).items()}
        return self.personal.method.logits(weights, self._cohort(x, edges))

    def _cohort(self, x: Tensor, edges: Tensor) -> Cohort:
        """The graph as a cohort of one on the parameters' device; that of the last call where it is the same graph."""
        device = next(iter(self.state_dict().values())).device
        versions = [0 if tensor.is_inference() else tensor._version for tensor in (x, edges)]
        if self._last is not None:
            (last_x, last_edges, *rest), cohort = self._last
            if last_x() is x and last_edges() is edges and rest == [versions, device]:
                return cohort
        cohort = self.personal.cohort(graph_of(x, edges), device)
        self._last = (weakref.ref(x), weakref.ref(edges), versions, device), cohort
        return cohort

    def __getstate__(self) -> dict[str, Any]:
        """Copies do not take the last graph with them."""
        return self.__dict__ | {"_last": None}


def graph_of(x: Tensor, edge_index: Tensor) -> Graph:
    """An unlabelled graph from features [n, F], dense or sparse, and edges [2, E]."""
    nodes = x.shape[0]
    unlabelled = np.full(nodes, -1, dtype=np.int64)
    edges = undirected(edge_index.detach().cpu().numpy(), nodes, "data.edge_index")
    return Graph("data", edges, _features(x.detach().cpu()), unlabelled, 0)


def _features(x: Tensor) -> Features:
    if x.layout == torch.strided:
        return np.ascontiguousarray(x.float().numpy())
    coo = x.to_sparse_coo().coalesce()
    row, column = coo.indices().numpy()
    return sp.csr_matrix((coo.values().float().numpy(), (row, column)), shape=tuple(coo.shape))
