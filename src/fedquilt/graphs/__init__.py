"""One graph: load it by name, read a user's own files, synthesise it, check it, split its nodes."""

from fedquilt.graphs.catalogue import Dataset, datasets
from fedquilt.graphs.check import Report, check_graph
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.load import data_folder, load_graph
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.prepare import prepare
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL, Split, draw_split, format_split, given_split, parse_split
from fedquilt.graphs.synthetic import natural_clients, patchwork, patchwork_communities
from fedquilt.graphs.tables import read_tables

__all__ = [
    "NONE",
    "TEST",
    "TRAIN",
    "VAL",
    "Dataset",
    "Graph",
    "Protocol",
    "Report",
    "Split",
    "check_graph",
    "data_folder",
    "datasets",
    "draw_split",
    "format_split",
    "given_split",
    "load_graph",
    "natural_clients",
    "parse_split",
    "patchwork",
    "patchwork_communities",
    "prepare",
    "read_npz",
    "read_tables",
    "write_npz",
]
