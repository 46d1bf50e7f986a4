"""Hashes of what a cell depends on: its options, its graph's content and its saved partition."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.datasets.load import data_folder, load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.federated import FederatedGraph
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.runs.clients_from import load_clients

_BYTES = 16
# The fields of a protocol that have been part of the digest from the start. A field that is added later counts only where it
# differs from its default, so that digests written before stay valid.
_FIRST_FIELDS = ("metric", "largest_component", "normalise_features", "split", "rounds", "epochs")


@dataclass(frozen=True)
class GraphSize:
    """The size of a graph, and how long its protocol trains.

    Attributes:
        nodes, edges: their numbers; an edge counts once. features: columns of the features.
        stored: bytes of the features as they are stored, sparse or dense.
        rounds: of a run that names none.
    """

    nodes: int
    edges: int
    features: int
    stored: int
    rounds: int


_sizes: dict[tuple[str, str, tuple[str, ...]], GraphSize] = {}  # of the graphs that were read


def json_digest(value: Any) -> str:
    """A hash of a JSON value; the order of keys does not matter."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=_BYTES).hexdigest()


@cache
def file_digest(path: str) -> str:
    """A hash of a file's content, empty where there is no file. Each file is read once."""
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=_BYTES).hexdigest() if Path(path).is_file() else ""


def graph_digest(dataset: str, data: str | None, clients_from: Sequence[str] | None = None) -> str:
    """A hash of a graph's content and protocol; `FedquiltError` where the graph is not available.

    With `clients_from` it is that of the clients' graphs joined.
    """
    found = _digest_or_error(dataset, str(data_folder(data)), tuple(clients_from or ()))
    if isinstance(found, FedquiltError):
        raise found
    return found


def content_digest(dataset: str, data: str | None, clients_from: Sequence[str] | None = None) -> str | None:
    """As `graph_digest`; None where the graph is not available."""
    found = _digest_or_error(dataset, str(data_folder(data)), tuple(clients_from or ()))
    return None if isinstance(found, FedquiltError) else found


def graph_size(dataset: str, data: str | None, clients_from: Sequence[str] | None = None) -> GraphSize | None:
    """The size of a graph; None where the graph is not available. It is read no second time for that."""
    which = dataset, str(data_folder(data)), tuple(clients_from or ())
    return _sizes.get(which) if isinstance(_digest_or_error(*which), str) else None


def why_no_graph(dataset: str, data: str | None, clients_from: Sequence[str] | None = None) -> str | None:
    """Why a graph is not available, as the end of a sentence; None where it is."""
    found = _digest_or_error(dataset, str(data_folder(data)), tuple(clients_from or ()))
    if isinstance(found, FedquiltError):
        if clients_from:
            return f"the clients' graphs cannot be had here ({str(found).rstrip('.')})"
        return f"the graph {dataset} cannot be had here (see 'fedquilt datasets')"
    return None


def protocol_text(protocol: Protocol, classes: int) -> str:
    """The protocol and the number of classes as the digest reads them; does not depend on the names of our classes."""
    first = {name: getattr(protocol, name) for name in _FIRST_FIELDS}
    later = {
        field.name: getattr(protocol, field.name)
        for field in dataclasses.fields(protocol)
        if field.name not in first and getattr(protocol, field.name) != field.default
    }
    values = ", ".join(f"{name}={value!r}" for name, value in (first | later).items())
    return f"(Protocol({values}), {classes})"


@cache
def _digest_or_error(dataset: str, data: str, clients_from: tuple[str, ...] = ()) -> str | FedquiltError:
    """The digest, or why there is none. Each graph is read once, and one that is not available is looked for once."""
    try:
        graph, protocol = load_clients(clients_from) if clients_from else load_graph(dataset, Path(data))
    except FedquiltError as error:
        return error
    stored = graph.x.nbytes if isinstance(graph.x, np.ndarray) else graph.x.data.nbytes + graph.x.indices.nbytes
    size = GraphSize(graph.nodes, graph.edges.shape[1], graph.x.shape[1], stored, protocol.rounds)
    _sizes[dataset, data, clients_from] = size
    digest = hashlib.blake2b(protocol_text(protocol, graph.classes).encode(), digest_size=_BYTES)
    for array in _arrays(graph):
        flat = np.ascontiguousarray(array)
        digest.update(f"{flat.dtype}{flat.shape}".encode())
        digest.update(flat.data)
    if isinstance(graph, FederatedGraph):  # names, by which clients have settings, and what their site.yaml says
        digest.update(json.dumps([graph.client_names, graph.prepare]).encode())
    return digest.hexdigest()


def _arrays(graph: Graph) -> Iterator[np.ndarray]:
    """All arrays of a graph that a training reads."""
    yield from (graph.edges, graph.y)
    yield from (graph.x,) if isinstance(graph.x, np.ndarray) else (graph.x.data, graph.x.indices, graph.x.indptr)
    yield from (graph.masks or {}).values()
    if graph.copies is not None:
        yield graph.copies
    if graph.edge_weights is not None:
        yield graph.edge_weights
    if isinstance(graph, FederatedGraph):
        yield graph.owner
