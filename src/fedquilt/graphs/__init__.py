"""One graph: read it from a user's files, validate, describe, prepare and split it. Named graphs are in `fedquilt.datasets`."""

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.tables import read_tables

__all__ = ["Graph", "read_npz", "read_tables", "write_npz"]
