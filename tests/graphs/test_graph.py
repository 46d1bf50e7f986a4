"""The graph itself: subgraphs, and PyTorch Geometric's Data in and out."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from fedquilt.cohort.client import clients_of
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.prepare import prepare
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.union import disjoint_union
from fedquilt.partition.partition import Partition
from fedquilt.scenarios.edge_noise import with_edge_noise
from support.graphs import assert_same, dense, graphs, tiny


@given(graphs(), st.data())
def test_subgraph_is_the_induced_one(graph: Graph, data: st.DataObject) -> None:
    kept = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=graph.nodes, max_size=graph.nodes)))
    part = graph.subgraph(kept, "part")
    whole = nx.Graph(list(map(tuple, graph.edges.T)))
    whole.add_nodes_from(range(graph.nodes))
    expected = {tuple(sorted(edge)) for edge in whole.subgraph(kept.tolist()).edges}
    assert {(kept[u], kept[v]) for u, v in part.edges.T} == expected
    assert np.array_equal(dense(part), dense(graph)[kept])
    assert np.array_equal(part.y, graph.y[kept])
    assert (part.name, part.classes) == ("part", graph.classes)
    assert part.ids is None or np.array_equal(part.ids, graph.ids[kept])


def test_what_is_made_of_a_graph_has_its_features_names() -> None:
    graph = tiny(feature_names=("a", "b", "c"))
    halves = Partition([np.array([0, 1]), np.array([2, 3])], "two", 0, graph.name, graph.nodes, "")
    made = [
        graph.subgraph(np.array([0, 1])),
        prepare(graph, Protocol(normalise_features=True, largest_component=True)),
        with_edge_noise(graph, 0.5, np.random.default_rng(0)),
        disjoint_union("both", [graph, graph]),
        *(client.graph for client in clients_of(graph, halves, np.zeros(4, dtype=np.int8))),
    ]
    assert all(one.feature_names == ("a", "b", "c") for one in made)


def test_adjacency_is_symmetric_without_self_loops() -> None:
    adjacency = tiny().adjacency().toarray()
    assert np.array_equal(adjacency, adjacency.T)
    assert adjacency.trace() == 0
    assert adjacency.sum() == 6


@given(graphs())
def test_data_there_and_back(graph: Graph) -> None:
    once = Graph.from_data(graph.to_data())
    assert np.array_equal(once.edges, graph.edges)
    assert np.array_equal(once.y, graph.y)
    assert np.array_equal(dense(once), dense(graph))
    assert (once.masks is None) == (graph.masks is None)
    assert_same(once, Graph.from_data(once.to_data()))


def test_from_data_cleans_edges() -> None:
    data = Data(x=torch.eye(3), y=torch.tensor([0, 1, 0]), edge_index=torch.tensor([[0, 1, 1, 2, 2], [1, 0, 1, 0, 0]]))
    graph = Graph.from_data(data, "mine")
    assert graph.name == "mine"
    assert graph.edges.tolist() == [[0, 0], [1, 2]]
    assert graph.edges.dtype == np.int64


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse_coo, torch.Tensor.to_sparse_csr])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_from_data_keeps_sparse_features_sparse(convert) -> None:
    data = Data(x=convert(torch.eye(3)), y=torch.tensor([0, 1, 0]), edge_index=torch.tensor([[0], [1]]))
    graph = Graph.from_data(data)
    assert sp.issparse(graph.x)
    assert np.array_equal(graph.x.toarray(), np.eye(3))


def test_from_data_takes_labels_in_a_column_and_drops_several_splits() -> None:
    data = tiny().to_data()
    data.y = data.y.view(-1, 1)
    for part in ("train", "val", "test"):
        data[f"{part}_mask"] = torch.zeros(4, 10, dtype=torch.bool)
    graph = Graph.from_data(data)
    assert graph.masks is None
    assert graph.y.tolist() == [0, 1, 1, -1]


@pytest.mark.parametrize("key", ["x", "y", "edge_index"])
def test_from_data_needs_all_three(key: str) -> None:
    data = tiny().to_data()
    del data[key]
    with pytest.raises(FedquiltError, match=f"has no `{key}`"):
        Graph.from_data(data)
