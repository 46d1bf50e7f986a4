"""A personal model as a `torch.nn.Module`: the method's own network over a cohort of one.

There is one implementation of a network, the method's. A method needs to write nothing for it to be exported.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.edge_weights import given_weight, undirected_with_weights, weight_array
from fedquilt.graphs.graph import Features, Graph
from fedquilt.methods.personal_model import Personal

_log = logging.getLogger(__name__)


class PersonalModule(nn.Module):
    """A personal model that maps PyTorch Geometric's `Data` to logits; it can be trained further.

    Parameters have the names of the personal model's weights and no client axis; matrices are [in, out]. Edges are
    undirected: direction, repetition and self-loops do not matter. Their weights are used where the model was trained on
    weights. The logits are differentiable in the parameters as far as
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

    def forward(self, data: Any, edge_index: Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """The logits of every node, [n, C]; of a regression its numbers in the units of the labels, [n, 1] float64.

        Args:
            data: an object with `x` [n, F], dense or sparse, and `edge_index` [2, E], perhaps with `edge_weight` [E], or
                `edge_attr` of one number an edge; or x itself.
            edge_index: where `data` is x.
            edge_weight: [E], where `data` is x and edges have weights.
        """
        if edge_index is None:
            x, edges, strength = data.x, data.edge_index, given_weight(data)
        else:
            x, edges, strength = data, edge_index, edge_weight
        weights = {name: tensor.unsqueeze(0) for name, tensor in self.state_dict(keep_vars=True).items()}
        return self.personal.outputs(weights, self._cohort(x, edges, strength))

    def _cohort(self, x: Tensor, edges: Tensor, strength: Tensor | None) -> Cohort:
        """The graph as a cohort of one on the parameters' device; that of the last call where it is the same graph."""
        device = next(iter(self.state_dict().values())).device
        given = [tensor for tensor in (x, edges, strength) if tensor is not None]
        versions = [0 if tensor.is_inference() else tensor._version for tensor in given]
        if self._last is not None:
            (last, *rest), cohort = self._last
            same = len(last) == len(given) and all(ref() is tensor for ref, tensor in zip(last, given, strict=True))
            if same and rest == [versions, device]:
                return cohort
        graph = graph_of(x, edges, strength)
        if warning := self.personal.weight_warning(graph):
            _log.warning("%s", warning)
        cohort = self.personal.cohort(graph, device)
        self._last = ([weakref.ref(tensor) for tensor in given], versions, device), cohort
        return cohort

    def __getstate__(self) -> dict[str, Any]:
        """Copies do not take the last graph with them."""
        return self.__dict__ | {"_last": None}


def graph_of(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Graph:
    """An unlabelled graph from features [n, F], dense or sparse, and edges [2, E], perhaps with weights [E]."""
    nodes = x.shape[0]
    unlabelled = np.full(nodes, -1, dtype=np.int64)
    given, where = edge_index.detach().cpu().numpy(), "data"
    weights = None
    if edge_weight is not None:
        weights = weight_array(edge_weight.detach().cpu().numpy(), edge_index.shape[-1], where)
    edges, weights = undirected_with_weights(given, weights, nodes, where)
    return Graph("data", edges, _features(x.detach().cpu()), unlabelled, 0, edge_weights=weights)


def _features(x: Tensor) -> Features:
    if x.layout == torch.strided:
        return np.ascontiguousarray(x.float().numpy())
    coo = x.to_sparse_coo().coalesce()
    row, column = coo.indices().numpy()
    return sp.csr_matrix((coo.values().float().numpy(), (row, column)), shape=tuple(coo.shape))
