"""Which client holds each node, where a graph's own file says so: the column `client` of a table, the array of an npz file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fedquilt.graphs.npz import read_npz_clients
from fedquilt.graphs.tables import TableOptions, is_table, read_tables_fully


def given_clients(path: str | os.PathLike[str], options: TableOptions | None = None) -> np.ndarray | None:
    """[N] names of the client that holds each node of the graph at `path`, in the order of its nodes; None: it does not say.

    Args:
        path: a folder of tables, a table of nodes, or an npz file.
        options: how tables are read; None: as their graph.yaml says.
    """
    path = Path(path).expanduser()
    if is_table(path):
        return read_tables_fully(path, labelled=False, options=options).clients
    return read_npz_clients(path)
