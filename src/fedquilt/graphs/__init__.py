"""One graph: read it from a user's files, validate, describe, prepare and split it. Named graphs are in `fedquilt.datasets`."""

from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.given_clients import given_clients
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.tables import read_tables

__all__ = ["Encoding", "Graph", "given_clients", "read_npz", "read_tables", "write_npz"]
