"""Load one graph from a dataset's name, a file, a folder of tables, or an object in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.common.printable import fault_of_text, shown
from fedquilt.datasets.catalogue import choose, in_catalogue
from fedquilt.datasets.dataset import Choice
from fedquilt.datasets.download import download
from fedquilt.errors import FedquiltError
from fedquilt.graphs.copies import with_copies
from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.tables import is_table, read_tables
from fedquilt.graphs.union import disjoint_union

if TYPE_CHECKING:
    from torch_geometric.data import Data

_FILES = "an npz file, a folder of tables or a csv file"


def load_graph(
    source: str | os.PathLike[str] | Graph | Data,
    data: Path | None = None,
    labelled: bool = True,
    encoding: Encoding | None = None,
) -> tuple[Graph, Protocol]:
    """Load a graph and its protocol.

    Args:
        source: a name of the catalogue (`cora`, `syn-cora:h=0.30,r=1`), a path to an npz file, to a folder
            of tables or to a table of nodes, a `Graph`, or PyTorch Geometric's `Data`.
        data: the folder in which named graphs are looked up, and stored once downloaded; see `data_folder`.
        labelled: whether at least one node must have a label, as for training.
        encoding: how the columns of a table become features, as for one that a model predicts for; None: as they look.

    Returns:
        The graph before preparation (see `prepare`), and its protocol: the catalogue's, or the default for a user's own graph.
    """
    if isinstance(source, Graph):
        source.validate(labelled=labelled)
        return source, Protocol()
    if isinstance(source, str) and in_catalogue(source):
        choice = choose(source)
        return _by_name(choice, data), choice.dataset.protocol
    if isinstance(source, str | os.PathLike):
        return _by_path(source, labelled, encoding), Protocol()
    return _from_object(source, labelled), Protocol()


def data_folder(data: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder with named graphs: the given one, else FEDQUILT_DATA, else the user's cache folder."""
    if data:
        return Path(data)
    if chosen := os.environ.get("FEDQUILT_DATA"):
        return Path(chosen)
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("fedquilt", appauthor=False)) / "graphs"


def _by_name(choice: Choice, data: Path | None) -> Graph:
    generate = choice.dataset.generate
    if generate is not None:
        return generate(**{key: int(value) for key, value in choice.parameters.items()})
    if choice.parts:
        return disjoint_union(choice.name, [_part(part, data) for part in choice.parts])
    folder = data_folder(data)
    for file in choice.files:
        path = folder / f"{file}.npz"
        if path.is_file():
            return with_copies(read_npz(path, name=file), choice.copies)
    graph = download(choice, folder)
    write_npz(graph, folder / f"{choice.files[0]}.npz")
    return with_copies(graph, choice.copies)


def _part(choice: Choice, data: Path | None) -> Graph:
    """Load one graph of a disjoint union. Its size must be the catalogue's, so that the graphs fit together."""
    graph, entry = _by_name(choice, data), choice.dataset
    found, expected = (f"{g.nodes} nodes, {g.features} features and {g.classes} classes" for g in (graph, entry))
    if found != expected:
        raise FedquiltError(f"{graph.name} has {found}, where {entry.name} has {expected}; get the published file.")
    return graph


def _by_path(source: str | os.PathLike[str], labelled: bool, encoding: Encoding | None = None) -> Graph:
    if fault := fault_of_text(os.fspath(source)):
        raise FedquiltError(f"The path of the graph has {fault}; rename the file.")
    try:
        path = Path(source).expanduser()
        if is_table(path):
            return read_tables(path, labelled, encoding=encoding)
        if path.is_file():
            return read_npz(path, labelled=labelled)
    except PermissionError as error:
        raise FedquiltError(
            f"{path} cannot be read ({error.strerror}); check that you may enter it, and the folders on the way."
        ) from error
    except (OSError, RuntimeError) as error:  # its name is too long, or begins with a ~ of nobody
        why = getattr(error, "strerror", None) or error
        raise FedquiltError(f"{shown(os.fspath(source))} is no path of a graph ({why}); give {_FILES}.") from error
    text = os.fspath(source)
    if isinstance(source, str) and path.name == text and not path.suffix:
        choose(text)  # raises: there is no such dataset
    # A Path object cannot be the name of a dataset.
    what = "an npz file, a folder of tables, a csv file or a dataset's name" if isinstance(source, str) else _FILES
    raise FedquiltError(f"There is no file or folder '{path}'; give {what}.")


def _from_object(source: Any, labelled: bool) -> Graph:
    if hasattr(source, "edge_types") and hasattr(source, "to_homogeneous"):
        raise FedquiltError(
            f"A {type(source).__name__} has several kinds of nodes or edges, and a graph here has one of each; give its nodes "
            "the same x (pad it with zeros) and a y (-1 where a kind has no labels), then give data.to_homogeneous(), or "
            "give the part that you want to classify, such as Data(x=data['paper'].x, y=data['paper'].y, "
            "edge_index=data['paper', 'cites', 'paper'].edge_index)."
        )
    if not hasattr(source, "edge_index"):
        raise FedquiltError(
            f"A {type(source).__name__} is not a graph; give a dataset's name, a path, a fedquilt Graph or a PyG Data."
        )
    return Graph.from_data(source, labelled=labelled)
