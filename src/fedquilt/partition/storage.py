"""Save a partition to one file, load it, and check that it belongs to a graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedquilt.common.archives import DamagedArchiveError, read_arrays
from fedquilt.common.files import write_npz
from fedquilt.common.json_text import parse_json
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.fingerprint import fingerprint
from fedquilt.partition.partition import Partition

FORMAT = "fedquilt partition"
VERSION = 1
_HEADER = {"kind": str, "seed": int, "graph": str, "total": int, "fingerprint": str, "settings": dict}


def save(partition: Partition, path: str | Path) -> None:
    """Write a partition to one npz file. The file appears complete or not at all."""
    path = Path(path)
    offsets = np.concatenate([[0], np.cumsum(partition.sizes)]).astype(np.int64)
    held, _ = partition.flat()
    problem = _problem(held, offsets, partition.total)
    if problem:
        raise FedquiltError(f"The partition cannot be saved because {problem}; make it again.")
    header = {"format": FORMAT, "version": VERSION, **{name: getattr(partition, name) for name in _HEADER}}
    try:
        text = json.dumps(header, sort_keys=True).encode()
    except TypeError as error:
        raise FedquiltError(f"The partition's settings cannot be saved ({error}); keep to plain values.") from error
    try:
        write_npz(path, {"header": np.frombuffer(text, dtype=np.uint8), "nodes": held, "offsets": offsets}, 0o666)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FedquiltError(f"Cannot write the partition '{path}' ({reason}); choose another place.") from error


def load(path: str | Path) -> Partition:
    """Read a partition that `save` wrote; an error for any other file."""
    path = Path(path)
    if not path.is_file():
        raise FedquiltError(f"There is no partition file '{path}'; make one or correct the path.")
    try:
        arrays = read_arrays(path, ("header", "nodes", "offsets"))
        text, held, offsets = (arrays[key] for key in ("header", "nodes", "offsets"))
        header = parse_json(text.tobytes())
    except (DamagedArchiveError, ValueError, KeyError) as error:
        raise _unreadable(path) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise _unreadable(path)
    if header.get("version") != VERSION:
        raise FedquiltError(
            f"The partition '{path}' has format version {header.get('version')}, but this fedquilt reads "
            f"version {VERSION}; make it again with this version."
        )
    for name, expected in _HEADER.items():
        # type, not isinstance: True is an instance of int, but not a seed.
        if type(header.get(name)) is not expected:
            raise FedquiltError(f"The partition '{path}' is damaged: its '{name}' is missing or wrong; make it again.")
    problem = _problem(held, offsets, header["total"])
    if problem:
        raise FedquiltError(f"The partition '{path}' is damaged: {problem}; make it again.")
    nodes = np.split(held, offsets[1:-1])
    return Partition(nodes=nodes, **{name: header[name] for name in _HEADER})


def check_fits(partition: Partition, graph: Graph) -> None:
    """Raise an error if the partition was made for another graph."""
    if partition.total != graph.nodes:
        raise FedquiltError(
            f"The partition was made for graph '{partition.graph}' with {partition.total} nodes, but graph "
            f"'{graph.name}' has {graph.nodes}; use that graph or make a partition for this one."
        )
    if partition.fingerprint != fingerprint(graph):
        raise FedquiltError(
            f"The partition was made for graph '{partition.graph}', whose edges are not those of graph "
            f"'{graph.name}'; use that graph or make a partition for this one."
        )


def _unreadable(path: Path) -> FedquiltError:
    return FedquiltError(f"'{path}' is not a partition of fedquilt, or it is damaged; make the partition again.")


def _problem(held: np.ndarray, offsets: np.ndarray, total: int) -> str | None:
    """The first fault of these arrays in words, or None. Clients are numbered from 0."""
    for name, array in (("nodes", held), ("offsets", offsets)):
        if array.ndim != 1 or array.dtype != np.int64:
            return f"its {name} are not a list of 64-bit whole numbers"
    if offsets.size < 2:
        return "it has no client"
    if offsets[0] != 0 or offsets[-1] != held.size or (np.diff(offsets) < 0).any():
        return "its offsets do not match its nodes"
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if empty.size:
        return f"client {empty[0]} holds no node"
    outside = np.flatnonzero((held < 0) | (held >= total))
    if outside.size:
        client = np.searchsorted(offsets, outside[0], side="right") - 1
        return f"client {client} holds node {held[outside[0]]}, but the graph has nodes 0 to {total - 1}"
    steps = np.diff(held)
    # Nodes need not rise from one client to the next.
    steps[offsets[1:-1] - 1] = 1
    wrong = np.flatnonzero(steps <= 0)
    if wrong.size:
        client = np.searchsorted(offsets, wrong[0], side="right") - 1
        return f"client {client}'s nodes are not sorted and distinct"
    return None
