"""Load a graph and describe it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.datasets.catalogue import in_catalogue
from fedquilt.datasets.load import load_graph
from fedquilt.graphs.check import GraphReport, describe_graph
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.tables import read_tables, table_options

if TYPE_CHECKING:
    from torch_geometric.data import Data


def check_graph(source: str | os.PathLike[str] | Graph | Data, data: Path | None = None, **options: Any) -> GraphReport:
    """Describe the graph that `load_graph` finds. A fault in it is raised as an error.

    `options` are those of `fedquilt.graphs.tables.TableOptions`, such as `id="patient"`, for a graph in tables. They come
    before those of a graph.yaml.
    """
    if options and isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        source = read_tables(path, options=table_options(path, options))
    graph, _ = load_graph(source, data)
    return describe_graph(graph, own=not (isinstance(source, str) and in_catalogue(source)))
