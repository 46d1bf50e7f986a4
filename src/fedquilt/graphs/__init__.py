"""One graph: read a user's own files, check it, prepare it, split its nodes. Named graphs are in `fedquilt.datasets`."""

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.tables import read_tables

__all__ = ["Graph", "read_npz", "read_tables", "write_npz"]
