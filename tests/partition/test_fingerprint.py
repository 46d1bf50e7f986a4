from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from fedquilt.graphs.graph import Graph
from fedquilt.partition import fingerprint
from support.partitions import graphs, make_graph


@given(graphs())
def test_order_of_edges_does_not_matter(graph: Graph) -> None:
    order = np.random.default_rng(0).permutation(graph.edges.shape[1])
    assert fingerprint(replace(graph, edges=graph.edges[:, order])) == fingerprint(graph)
    assert fingerprint(replace(graph, edges=graph.edges[::-1])) == fingerprint(graph)
    assert fingerprint(replace(graph, edges=graph.edges.astype(np.int32), name="other")) == fingerprint(graph)


def test_edges_and_nodes_matter() -> None:
    def of(edges: list[list[int]], nodes: int) -> str:
        return fingerprint(make_graph(np.array(edges, np.int64).reshape(2, -1), nodes))

    prints = [of([[0], [1]], 3), of([[0], [2]], 3), of([[0], [1]], 4), of([[], []], 3), of([[], []], 4)]
    assert len(set(prints)) == len(prints)


def test_it_never_changes() -> None:
    # Saved partitions carry it: another value would make them all useless.
    assert fingerprint(make_graph(np.array([[0, 1], [1, 2]]), 3)) == "86a5b2b8dfd070a0b2630e739c42fcf5"
