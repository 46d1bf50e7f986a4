"""The graphs with a name: catalogue, download, raw files, synthetic ones; and `load_graph`, which loads any graph."""

from fedquilt.datasets.catalogue import Dataset, datasets
from fedquilt.datasets.check import GraphReport, check_graph
from fedquilt.datasets.load import data_folder, load_graph
from fedquilt.datasets.synthetic import natural_clients, patchwork, patchwork_communities

__all__ = [
    "Dataset",
    "GraphReport",
    "check_graph",
    "data_folder",
    "datasets",
    "load_graph",
    "natural_clients",
    "patchwork",
    "patchwork_communities",
]
