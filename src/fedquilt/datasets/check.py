"""Load a graph and describe it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedquilt.datasets.load import load_graph
from fedquilt.graphs.check import GraphReport, describe_graph
from fedquilt.graphs.graph import Graph

if TYPE_CHECKING:
    from torch_geometric.data import Data


def check_graph(source: str | os.PathLike[str] | Graph | Data, data: Path | None = None) -> GraphReport:
    """Describe the graph that `load_graph` finds. A fault in it is raised as an error."""
    graph, _ = load_graph(source, data)
    return describe_graph(graph)
