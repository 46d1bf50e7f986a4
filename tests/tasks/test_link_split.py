"""The split of a client's edges: its parts, its negatives, and over what messages pass; beside PyTorch Geometric's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.node_pairs import number_pairs
from fedquilt.graphs.split import TRAIN, Shares
from fedquilt.tasks.link_split import JOINED, PARTS, EdgeSplit, negatives, seen_client, weights, without_part
from support.graphs import graphs

SHARES = Shares(0.7, 0.1, 0.2)


def pairs(edges: np.ndarray) -> set[tuple[int, int]]:
    found = {(int(u), int(v)) for u, v in edges.T}
    assert len(found) == edges.shape[1]  # no pair twice
    assert all(u < v for u, v in found)
    return found


def some_graph(nodes: int = 40, edges: int = 150, weighted: bool = False) -> Graph:
    rng = np.random.default_rng(1)
    u, v = np.triu_indices(nodes, 1)
    chosen = np.sort(rng.permutation(len(u))[:edges])
    strengths = rng.random(edges).astype(np.float32) + 0.5 if weighted else None
    x = np.ones((nodes, 2), np.float32)
    return Graph("some", np.stack([u[chosen], v[chosen]]), x, np.zeros(nodes, np.int64), 1, edge_weights=strengths)


@given(graphs(), st.sampled_from([0.0, 0.3, 0.9]), st.integers(0, 5), st.integers(0, 3))
def test_parts_are_apart_and_negatives_are_no_edges_of_any_part(
    graph: Graph, disjoint: float, seed: int, number: int
) -> None:
    client = EdgeSplit(SHARES, disjoint).client(number, graph, seed)
    whole, messages = pairs(graph.edges), pairs(client.graph.edges)
    parts = {part: pairs(client.held_out[part]) for part in PARTS}
    assert not parts["val"] & parts["test"]
    for part in ("val", "test"):  # held out: in no other part, and no message passes over it
        assert not parts[part] & (messages | parts["train"])
    assert parts["train"] <= messages if not disjoint else not parts["train"] & messages
    assert messages | parts["train"] | parts["val"] | parts["test"] == whole
    apart = [pairs(client.held_out[negatives(part)]) for part in PARTS]
    assert not set().union(*apart) & whole
    assert len(set().union(*apart)) == sum(map(len, apart))
    free = graph.nodes * (graph.nodes - 1) // 2 - len(whole)
    assert sum(map(len, apart)) == min(free, sum(map(len, parts.values())))
    assert client.held_out[JOINED].tolist() == sorted(number_pairs(graph.edges).tolist())
    assert (client.split == TRAIN).all()


@given(graphs(), st.sampled_from([0.0, 0.5]))
def test_messages_pass_over_the_edges_of_the_parts_before(graph: Graph, disjoint: float) -> None:
    client = EdgeSplit(SHARES, disjoint).client(0, graph, 0)
    held = {part: pairs(client.held_out[part]) for part in PARTS}
    seen = {part: pairs(seen_client(client, part).graph.edges) for part in (*PARTS, None)}
    assert seen["train"] == pairs(client.graph.edges)
    assert seen["val"] == seen["train"] | held["train"]
    assert seen["test"] == seen["val"] | held["val"]
    assert not seen["val"] & (held["val"] | held["test"])
    assert not seen["test"] & held["test"]
    assert seen[None] == pairs(graph.edges)


@pytest.mark.parametrize("edges", [10, 57, 150])
@pytest.mark.parametrize("disjoint", [0.0, 0.3])
def test_the_parts_are_as_large_as_pytorch_geometrics(edges: int, disjoint: float) -> None:
    graph = some_graph(edges=edges)
    both = torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1).copy())
    transform = RandomLinkSplit(0.1, 0.2, is_undirected=True, disjoint_train_ratio=disjoint)
    theirs = dict(zip(("train", "val", "test"), transform(Data(edge_index=both, num_nodes=40)), strict=True))
    client = EdgeSplit(SHARES, disjoint).client(0, graph, 0)
    for part, data in theirs.items():
        count = client.held_out[part].shape[1]
        assert count == int((data.edge_label == 1).sum())
        assert client.held_out[negatives(part)].shape[1] == int((data.edge_label == 0).sum())
        assert (
            2 * seen_client(client, part).graph.edges.shape[1] == data.edge_index.shape[1]
        )  # messages, both directions


def test_the_draw_belongs_to_the_seed_and_the_client_and_not_to_the_order_of_edges() -> None:
    graph, split = some_graph(), EdgeSplit(SHARES, 0.5)
    shuffled = replace(graph, edges=graph.edges[:, np.random.default_rng(0).permutation(150)])
    one = split.client(2, graph, 7)
    for other, same in ((split.client(2, shuffled, 7), True), (split.client(3, graph, 7), False)):
        assert (pairs(other.held_out["test"]) == pairs(one.held_out["test"])) is same
    assert pairs(split.client(2, graph, 8).held_out["test"]) != pairs(one.held_out["test"])


def test_edge_weights_go_with_their_edges_and_stay_relative_to_the_training_graph() -> None:
    graph = some_graph(weighted=True)
    known = dict(zip(map(tuple, graph.edges.T.tolist()), graph.edge_weights.tolist(), strict=True))
    client = EdgeSplit(SHARES, 0.5).client(0, graph, 0)
    for part in PARTS:
        for edge, weight in zip(client.held_out[part].T.tolist(), client.held_out[weights(part)], strict=True):
            assert weight == np.float32(known[tuple(edge)])
        seen = seen_client(client, part)
        for edge, weight in zip(seen.graph.edges.T.tolist(), seen.graph.edge_weights, strict=True):
            assert weight == np.float32(known[tuple(edge)])
        assert seen.mean_weight == client.mean_weight


def test_small_clients_train_on_what_they_have() -> None:
    for edges, counts in ((0, (0, 0, 0)), (1, (1, 0, 0)), (5, (2, 0, 1)), (10, (3, 1, 2))):
        assert tuple(EdgeSplit(SHARES, 0.5).counts(edges)[part] for part in ("train", "val", "test")) == counts


def test_a_search_has_no_test_edges_and_trains_the_same() -> None:
    client = EdgeSplit(SHARES, 0.5).client(0, some_graph(weighted=True), 0)
    left = without_part(client, "test")
    for name, array in client.held_out.items():
        gone = name in ("test", negatives("test"), weights("test"))
        assert left.held_out[name].shape[-1] == (0 if gone else array.shape[-1])
    assert left.graph is client.graph
