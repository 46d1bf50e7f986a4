"""Readers of raw files for which PyTorch Geometric has no class: syn-cora, credit, ogbn-arxiv."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import scipy.sparse as sp

from fedquilt.common.archives import read_arrays
from fedquilt.common.read_limit import check_size, read_limit
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import csr
from fedquilt.graphs.tables import LONGEST_LINE

AnyPath = Path | zipfile.Path
_ADJACENCY = ("adj_indptr", "adj_indices", "adj_data", "adj_shape")
_ATTRIBUTES = ("attr_indptr", "attr_indices", "attr_data", "attr_shape")


def read_h2gcn(path: Path, name: str) -> Graph:
    """Read a graph in H2GCN's npz layout: the adjacency and the attributes as CSR matrices, and labels."""
    arrays = read_arrays(path, (*_ADJACENCY, *_ATTRIBUTES, "attr_matrix", "labels"))
    dense = "attr_matrix" in arrays
    for key in (*_ADJACENCY, *(("attr_matrix",) if dense else _ATTRIBUTES), "labels"):
        if key not in arrays:
            raise FedquiltError(f"{path} has no array '{key}'; it is not a graph as H2GCN publishes them.")
    adjacency = _matrix(arrays, _ADJACENCY, path).tocoo()
    x = arrays["attr_matrix"] if dense else _matrix(arrays, _ATTRIBUTES, path)
    edges = np.stack([adjacency.row, adjacency.col])[:, adjacency.data != 0]
    return Graph.from_arrays(name, edges, x, arrays["labels"], where=str(path))


def read_nifty_credit(folder: Path, name: str) -> Graph:
    """Read the credit graph as NIFTY publishes it: people in credit.csv, edges in credit_edges.txt.

    The label is NoDefaultNextMonth. As in NIFTY, all other columns but Single are features.
    """
    table, edge_list = folder / "credit.csv", folder / "credit_edges.txt"
    for path in (table, edge_list):
        if not path.is_file():
            raise FedquiltError(f"There is no file '{path}'; put credit.csv and credit_edges.txt from NIFTY there.")
    try:
        with open(table, encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(bounded_lines(file, table)), [])
    except (ValueError, csv.Error) as error:
        raise FedquiltError(f"{table} is not a csv file in UTF-8; copy or download it again.") from error
    if "NoDefaultNextMonth" not in header:
        raise FedquiltError(f"{table} has no column 'NoDefaultNextMonth'; it is not NIFTY's credit.csv.")
    values = _numbers(table, skip=1, delimiter=",")
    kept = [number for number, column in enumerate(header) if column not in ("NoDefaultNextMonth", "Single")]
    edges = _numbers(edge_list)
    if edges.size and (edges.shape[1] != 2 or (edges != np.round(edges)).any()):
        raise FedquiltError(f"{edge_list} is not a list of edges; each line must have two node numbers.")
    y = values[:, header.index("NoDefaultNextMonth")]
    return Graph.from_arrays(name, edges.astype(np.int64).reshape(-1, 2).T, values[:, kept], y, where=str(table))


def read_ogb(folder: AnyPath, name: str) -> Graph:
    """Read a graph of the Open Graph Benchmark, in a folder or in a zip file: raw/*.csv.gz, its given split in split/time."""
    raw, split = folder / "raw", folder / "split" / "time"
    edges = _numbers(raw / "edge.csv.gz", delimiter=",", dtype=np.int64)
    x = _numbers(raw / "node-feat.csv.gz", delimiter=",", dtype=np.float32)
    y = _numbers(raw / "node-label.csv.gz", delimiter=",").reshape(-1)
    masks = None
    if split.is_dir():
        masks = {part: np.zeros(len(y), dtype=bool) for part in ("train", "val", "test")}
        for part, file in zip(masks, ("train", "valid", "test"), strict=True):
            masks[part][_numbers(split / f"{file}.csv.gz", delimiter=",", dtype=np.int64).reshape(-1)] = True
    return Graph.from_arrays(name, edges.reshape(-1, 2).T, x, y, masks=masks, where=str(folder))


def bounded_lines(file: TextIO, path: AnyPath) -> Iterator[str]:
    """The lines of a file. A short gzip file may have very many, or a very long one: both are refused while they are read."""
    size, limit = 0, read_limit()
    while line := file.readline(LONGEST_LINE):
        size += len(line) * 4  # a number takes two characters at least, and eight bytes
        if size > limit:
            check_size(Path(str(path)), size, "what was read of it so far")
        if len(line) == LONGEST_LINE:
            raise ValueError("a line is too long")
        yield line


def _matrix(arrays: dict[str, np.ndarray], keys: tuple[str, ...], path: Path) -> sp.csr_matrix:
    indptr, indices, data, shape = (arrays[key] for key in keys)
    return csr(indptr, indices, data, shape, str(path))


def _numbers(path: AnyPath, skip: int = 0, delimiter: str | None = None, dtype: Any = np.float64) -> np.ndarray:
    """Read a text file of numbers, gzipped or not, as a two-dimensional array; no more of it than fits into memory."""
    try:
        with path.open("rb") as raw, gzip.open(raw) if path.name.endswith(".gz") else raw as unpacked:
            lines = bounded_lines(io.TextIOWrapper(unpacked, encoding="utf-8"), path)
            return np.loadtxt(lines, dtype=dtype, delimiter=delimiter, skiprows=skip, ndmin=2)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise FedquiltError(f"{path} cannot be read as a table of numbers; copy or download it again.") from error
