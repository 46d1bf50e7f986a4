"""Graphs that the partition tests share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.graphs.graph import Graph

from .helpers import make_graph


@pytest.fixture(scope="session")
def cora(data_folder: Path) -> Graph:
    """The largest connected component of Cora, which is what the papers cut."""
    return largest_component(data_folder / "cora.npz")


def largest_component(path: Path) -> Graph:
    with np.load(path, allow_pickle=False) as data:
        edges, y = data["edge_index"].astype(np.int64), data["y"].astype(np.int64)
    graph = make_graph(edges, len(y), y=y, name=path.stem)
    _, labels = sp.csgraph.connected_components(graph.adjacency(), directed=False)
    return graph.subgraph(np.flatnonzero(labels == np.bincount(labels).argmax()))
