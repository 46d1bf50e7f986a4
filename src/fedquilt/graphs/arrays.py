"""Clean the arrays that a graph is built from: edges, features and labels as a file or a user gives them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from fedquilt.errors import FedquiltError

Features: TypeAlias = np.ndarray | sp.csr_matrix


def undirected(edges: Any, nodes: int, where: str = "the graph") -> np.ndarray:
    """Clean edges: return [2, E] int64, each edge once with ``u < v``, sorted, without self-loops and duplicates."""
    array = np.asarray(edges)
    if array.ndim != 2 or array.shape[0] != 2:
        raise FedquiltError(f"{where} has edges of shape {shape_text(array)}; they must be 2 x E, one column an edge.")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise FedquiltError(
            f"{where} has edges of type {array.dtype}; they must be whole numbers, the nodes' positions."
        )
    array = array.astype(np.int64, copy=False)
    if array.size and (array.min() < 0 or array.max() >= nodes):
        u, v = array[:, ((array < 0) | (array >= nodes)).any(axis=0).argmax()]
        raise FedquiltError(
            f"{where} has an edge {u}-{v} to a node that is not there; nodes are numbered 0 to {nodes - 1}."
        )
    low, high = np.minimum(*array), np.maximum(*array)
    # Sorting and comparing is ten times as fast as np.unique, which uses hashing in newer versions.
    keys = np.sort((low * nodes + high)[low != high])
    keys = keys[np.diff(keys, prepend=-1) > 0]
    first = keys // nodes
    return np.stack([first, keys - first * nodes])


def label_array(y: Any, where: str) -> np.ndarray:
    """Convert labels to [N] int64; NaN becomes -1, which means unlabelled."""
    array = np.asarray(y)
    if array.ndim != 1:
        raise FedquiltError(f"{where} has labels of shape {shape_text(array)}; give one whole number for each node.")
    if array.size and np.issubdtype(array.dtype, np.floating):
        array = np.where(np.isnan(array), -1, array)
        if (array != np.round(array)).any() or not np.isfinite(array).all():
            raise FedquiltError(f"{where} has labels that are not whole numbers; number the classes 0, 1, 2, ...")
    elif array.size and not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_):
        raise FedquiltError(f"{where} has labels of type {array.dtype}; number the classes 0, 1, 2, ...")
    # Compared before the conversion, in which a larger number would become a negative one.
    if array.size and array.dtype != np.bool_ and not (array.min() > -(2**62) and array.max() < 2**62):
        raise FedquiltError(f"{where} has labels of more than 62 bits; number the classes 0, 1, 2, ...")
    return array.astype(np.int64)


def feature_array(x: Any, where: str) -> Features:
    """Convert features to [N, F] float32; a sparse matrix stays sparse (CSR)."""
    if sp.issparse(x):
        matrix = sp.csr_matrix(x, dtype=np.float32)
        matrix.sum_duplicates()
        return matrix
    array = np.asarray(x)
    if array.ndim != 2:
        raise FedquiltError(f"{where} has features of shape {shape_text(array)}; they must be nodes x features.")
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_) or np.iscomplexobj(array):
        raise FedquiltError(f"{where} has features of type {array.dtype}; they must be numbers.")
    # A value too large for float32 becomes infinite here; validation reports it.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def from_tensor(x: Any) -> Any:
    """Convert a tensor to an array, and a sparse tensor to a CSR matrix."""
    import torch

    x = x.detach().cpu()
    if x.layout == torch.strided:
        return x.numpy()
    coo = x.to_sparse_coo().coalesce()
    return sp.csr_matrix((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))


def as_sparse(x: Features) -> sp.csr_matrix:
    """Convert features to CSR."""
    return x if sp.issparse(x) else sp.csr_matrix(x)


def shape_text(array: np.ndarray) -> str:
    """Format an array's shape for error messages, such as `2 x 5`."""
    return " x ".join(str(side) for side in array.shape) or "()"
