"""One graph, from wherever it is: a name, a file, a folder of tables, or an object in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.datasets.catalogue import CATALOGUE, Choice, choose, in_catalogue
from fedquilt.datasets.download import fetch
from fedquilt.datasets.synthetic import GENERATORS
from fedquilt.datasets.union import disjoint_union
from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs.build import from_data, validate
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.tables import read_tables

if TYPE_CHECKING:
    from torch_geometric.data import Data

_FILES = "an npz file or a folder of tables"


def load_graph(
    source: str | os.PathLike[str] | Graph | Data, data: Path | None = None, labelled: bool = True
) -> tuple[Graph, Protocol]:
    """A graph and the usual way to use it.

    Args:
        source: a name of the catalogue (`cora`, `syn-cora:h=0.30,r=1`), a path to an npz file or to a folder
            of tables, a `Graph`, or PyTorch Geometric's `Data`.
        data: the folder in which graphs are sought by name and stored once fetched; see `data_folder`.
        labelled: whether some node has to have a label, as for training.

    Returns:
        The graph as it stands (see `prepare`), and its protocol: the catalogue's, or the default for a user's
        own graph.
    """
    if isinstance(source, Graph):
        validate(source, labelled=labelled)
        return source, Protocol()
    if isinstance(source, str) and in_catalogue(source):
        choice = choose(source)
        return _by_name(choice, data), choice.dataset.protocol
    if isinstance(source, str | os.PathLike):
        return _by_path(source, labelled), Protocol()
    return _from_object(source, labelled), Protocol()


def data_folder(data: str | os.PathLike[str] | None = None) -> Path:
    """Where graphs are sought by name: the given folder, else FEDQUILT_DATA, else the user's cache folder."""
    if data:
        return Path(data)
    if chosen := os.environ.get("FEDQUILT_DATA"):
        return Path(chosen)
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("fedquilt", appauthor=False)) / "graphs"


def _by_name(choice: Choice, data: Path | None) -> Graph:
    name = choice.dataset.name
    if name in GENERATORS:
        return GENERATORS[name](**{key: int(value) for key, value in choice.parameters.items()})
    if choice.parts:
        return disjoint_union(choice.name, [_part(part, data) for part in choice.parts])
    folder = data_folder(data)
    for file in choice.files:
        path = folder / f"{file}.npz"
        if path.is_file():
            return read_npz(path, name=file)
    graph = fetch(choice, folder)
    write_npz(graph, folder / f"{choice.files[0]}.npz")
    return graph


def _part(choice: Choice, data: Path | None) -> Graph:
    """One graph of several that are put side by side; it has to be as the catalogue says, so that they fit."""
    graph, entry = _by_name(choice, data), choice.dataset
    found, right = ((g.nodes, g.features, g.classes) for g in (graph, entry))
    if found != right:
        here, there = (
            f"{nodes} nodes, {features} features and {classes} classes" for nodes, features, classes in (found, right)
        )
        raise FedquiltError(f"{graph.name} has {here}, where {entry.name} has {there}; get the published file.")
    return graph


def _by_path(source: str | os.PathLike[str], labelled: bool) -> Graph:
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            return read_tables(path, labelled)
        if path.is_file():
            return read_npz(path, labelled=labelled)
    except PermissionError as error:
        raise FedquiltError(
            f"{path} cannot be read ({error.strerror}); check that you may enter it, and the folders on the way."
        ) from error
    text = os.fspath(source)
    if isinstance(source, str) and path.name == text and not path.suffix:
        raise unknown("dataset", text, CATALOGUE)
    # Where a path has to be given, a dataset's name is none.
    what = "an npz file, a folder of tables, or a dataset's name" if isinstance(source, str) else _FILES
    raise FedquiltError(f"There is no file or folder '{path}'; give {what}.")


def _from_object(source: Any, labelled: bool) -> Graph:
    if not hasattr(source, "edge_index"):
        raise FedquiltError(
            f"A {type(source).__name__} is not a graph; give a dataset's name, a path, a fedquilt Graph or a PyG Data."
        )
    return from_data(source, labelled=labelled)
