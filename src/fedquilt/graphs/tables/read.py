"""Read a graph from tables: a folder with nodes.csv and edges.csv (or parquet), or the files. See `fedquilt docs data`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.edge_weights import undirected_with_weights, warn_of_direction, warn_of_unused
from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.federated import with_owners
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.tables.edges import Edges, no_edges, read_edges
from fedquilt.graphs.tables.features import ColumnNote
from fedquilt.graphs.tables.nodes import Nodes, read_nodes
from fedquilt.graphs.tables.options import TableOptions, read_table_options
from fedquilt.graphs.tables.problems import Problems

ENDS = (".csv", ".tsv", ".parquet")
"""How the names of tables end that are looked for in a folder."""

TABLE_ENDS = (*ENDS, ".txt", ".tab")
"""How the name of a table may end that is named itself."""


@dataclass(frozen=True, eq=False)
class Tables:
    """A graph that was read from tables, and how.

    Attributes:
        graph: the graph; its `encoding` says how the columns became features.
        clients: [N] the name of the client that holds each node, of the column `client`; None where there is none.
        notes: what became of each column.
        edges: the edges as they stand in the table, with what was repeated.
        found: how the files are written, in words, by file.
        empty: rows of the nodes that had nothing in any column.
    """

    graph: Graph
    clients: np.ndarray | None
    notes: tuple[ColumnNote, ...]
    edges: Edges
    found: dict[str, str]
    empty: int


def is_table(path: Path) -> bool:
    """Whether a path is a folder, or a file that is a table by its name."""
    return path.is_dir() or (path.is_file() and path.suffix.lower() in TABLE_ENDS)


def read_tables(
    folder: Path,
    labelled: bool = True,
    *,
    encoding: Encoding | None = None,
    options: TableOptions | None = None,
) -> Graph:
    """Read the graph in a folder that has nodes.csv and edges.csv (or the same as tsv or parquet), or in a table of nodes.

    It is a `FederatedGraph` where a column says which client holds each node.

    Args:
        folder: the folder, or a table of nodes: its edges are in the file `edges` beside it if it is called `nodes`, else none.
        labelled: whether at least one node must have a label; otherwise the column may be missing.
        encoding: how columns are to become features, as for a table that is predicted for; None: as they look.
        options: how the tables are to be read; None: as the folder's graph.yaml says.
    """
    found = read_tables_fully(folder, None, labelled, encoding=encoding, options=options)
    return found.graph if found.clients is None else with_owners(found.graph, found.clients)


def read_tables_fully(
    path: Path,
    edges: Path | None = None,
    labelled: bool = True,
    *,
    encoding: Encoding | None = None,
    options: TableOptions | None = None,
) -> Tables:
    """The same with all that was found: the clients of the nodes, what became of each column, repeated edges.

    `edges` is the file of edges, where `path` is a file. All problems of all files are one error.
    """
    folder = path if path.is_dir() else path.parent
    options = read_table_options(folder) if options is None else options
    nodes_path, edges_path = _files(path, edges)
    problems = Problems(path)
    nodes = read_nodes(nodes_path, options, problems, labelled, encoding, folder / "classes.txt")
    if nodes is None:
        problems.raise_any()
    assert nodes is not None  # else there was a problem
    place = {name: number for number, name in reversed(list(enumerate(nodes.ids)))}
    found = no_edges()
    if edges_path is not None:
        found = read_edges(edges_path, options, problems, place, nodes.table)
    problems.raise_any()
    name = path.resolve().name if path.is_dir() else path.stem
    return Tables(
        graph=_graph(name, nodes, found, nodes_path, edges_path, labelled),
        clients=nodes.clients,
        notes=nodes.notes,
        edges=found,
        found=_found(nodes),
        empty=nodes.table.empty,
    )


def _graph(name: str, nodes: Nodes, edges: Edges, where: Path, edges_path: Path | None, labelled: bool) -> Graph:
    warn_of_unused(edges.ignored, str(edges_path), "columns")
    warn_of_direction(edges.pairs, str(edges_path), usual=True)
    pairs, weights = undirected_with_weights(edges.pairs, edges.weights, len(nodes.ids), str(edges_path))
    return Graph.from_arrays(
        name,
        pairs,
        nodes.x,
        nodes.y,
        classes=None if nodes.class_names is None else len(nodes.class_names),
        masks=nodes.masks,
        ids=np.array(nodes.ids),
        class_names=nodes.class_names,
        feature_names=nodes.encoding.feature_names,
        encoding=nodes.encoding,
        edge_weights=weights,
        numbers=nodes.numbers,
        where=str(where),
        labelled=labelled,
    )


def _found(nodes: Nodes) -> dict[str, str]:
    written = nodes.table.dialect
    if written is None:
        return {nodes.table.path.name: "parquet"}
    decimal = ", decimal commas" if nodes.decimal == "," else ""
    return {nodes.table.path.name: written.in_words + decimal}


def _files(path: Path, edges: Path | None) -> tuple[Path, Path | None]:
    if path.is_dir():
        if edges is not None:
            raise FedquiltError(f"{path} is a folder, which has its own edges; give a file of nodes, or no edges.")
        nodes_path, edges_path = _find(path, "nodes"), _find(path, "edges")
        return nodes_path, edges_path
    for file in (path, edges):
        if file is not None and not file.is_file():
            raise FedquiltError(f"There is no file '{file}'; check the path.")
        if file is not None and file.suffix.lower() not in TABLE_ENDS:
            raise FedquiltError(f"{file} is no table; save it as csv or parquet, with such an end of its name.")
    if edges is None and path.stem == "nodes":
        beside = [path.with_name(f"edges{end}") for end in ENDS if path.with_name(f"edges{end}").is_file()]
        edges = _only(path.parent, "edges", beside) if beside else None
    return path, edges


def _find(folder: Path, stem: str) -> Path:
    found = [folder / f"{stem}{end}" for end in ENDS if (folder / f"{stem}{end}").is_file()]
    if not found:
        raise FedquiltError(
            f"{folder} has no {stem}.csv or {stem}.parquet; a folder of tables needs nodes and edges (see "
            "'fedquilt docs data')."
        )
    return _only(folder, stem, found)


def _only(folder: Path, stem: str, found: list[Path]) -> Path:
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise FedquiltError(f"{folder} has both {names}; remove one, so that it is clear which is meant.")
    return found[0]
