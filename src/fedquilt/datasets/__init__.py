"""Named graphs: the catalogue, download, raw files, synthetic graphs; and `load_graph`, which loads any graph."""

from fedquilt.datasets.catalogue import datasets, natural_clients, register, register_synthetic
from fedquilt.datasets.check import check_graph
from fedquilt.datasets.dataset import Dataset
from fedquilt.datasets.load import data_folder, load_graph
from fedquilt.graphs.check import GraphReport

__all__ = [
    "Dataset",
    "GraphReport",
    "check_graph",
    "data_folder",
    "datasets",
    "load_graph",
    "natural_clients",
    "register",
    "register_synthetic",
]
