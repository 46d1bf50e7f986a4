"""Build ieee-fraud from Kaggle's IEEE-CIS fraud detection: transactions, joined where they happen one after the other.

FedHERO describes its graph in a sentence and prints its size: 144,233 nodes, 28,053,717 edges, 371 features; its code is not
public. The nodes are the transactions that have an identity (train_identity.csv has 144,233 rows). The features are the numbers
that are no codes: TransactionAmt, dist1 and 2, C1 to 14, D1 to 15 and V1 to 339, 371 in all. "Edges determined by the proximity
of transaction occurrences" leaves the rule open: here each transaction is joined to the `neighbours` before it of the same
product (195: 28,048,995 edges). The clients are the products, of which those with identities are four.

A feature has mean zero and standard deviation one over the nodes, and zero where it is not known.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.datasets.raw_files import bounded_lines
from fedquilt.errors import FedquiltError
from fedquilt.graphs.federated import FederatedGraph, with_owners
from fedquilt.graphs.graph import Graph

TRANSACTIONS, IDENTITIES = "train_transaction.csv", "train_identity.csv"
KEY, LABEL, TIME, PRODUCT = "TransactionID", "isFraud", "TransactionDT", "ProductCD"
_NUMBERED = (("dist", 2), ("C", 14), ("D", 15), ("V", 339))
FEATURES = ("TransactionAmt", *(f"{kind}{number}" for kind, most in _NUMBERED for number in range(1, most + 1)))


def read_ieee_fraud(folder: Path, name: str, neighbours: int) -> FederatedGraph:
    """Read the graph from the two files in `folder`; it has about nodes x `neighbours` edges."""
    table, identities = folder / TRANSACTIONS, folder / IDENTITIES
    products: list[str] = []
    rows: list[np.ndarray] = []
    with _one_sentence(identities):
        known = {key for (key,) in _cells(identities, (KEY,))}
    with _one_sentence(table):
        for key, product, *values in _cells(table, (KEY, PRODUCT, LABEL, TIME, *FEATURES)):
            if key in known:
                products.append(product)
                rows.append(np.array([value or "nan" for value in values], dtype=np.float64).astype(np.float32))
    if not rows:
        raise FedquiltError(f"{table} has no transaction of {IDENTITIES}; both are Kaggle's training files.")
    check_size(table, 16 * neighbours * len(rows), f"a graph with {neighbours} neighbours a node")
    numbers, owner = np.stack(rows), np.array(products)
    label, time, x = numbers[:, 0], numbers[:, 1], _standardised(numbers[:, 2:])
    edges = _edges(time, owner, neighbours)
    return with_owners(Graph.from_arrays(name, edges, x, label, feature_names=FEATURES, where=str(table)), owner)


def _cells(path: Path, columns: tuple[str, ...]) -> Iterator[list[str]]:
    """The cells of some columns, row by row."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(bounded_lines(file, path))
        header = next(rows, [])
        if missing := [column for column in columns if column not in header]:
            raise FedquiltError(f"{path} has no column '{missing[0]}'; it is not Kaggle's {path.name}.")
        places = [header.index(column) for column in columns]
        for row in rows:
            yield [row[place] for place in places]


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    """Say in a sentence what is wrong with a file that is read in the block."""
    try:
        yield
    except OSError as error:
        raise FedquiltError(
            f"{path} cannot be read ({error.strerror or error}); put {TRANSACTIONS} and {IDENTITIES} of Kaggle's "
            "ieee-fraud-detection there."
        ) from error
    except (ValueError, IndexError, csv.Error) as error:
        raise FedquiltError(f"{path} is not Kaggle's {path.name}, or not all of it; get it again.") from error


def _standardised(x: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and standard deviation 1 over what is known, and 0 where it is not: [N, F] float32."""
    known = ~np.isnan(x)
    count = np.maximum(known.sum(0), 1)
    mean = np.where(known, x, 0.0).sum(0, dtype=np.float64) / count
    centred = np.where(known, x - mean, 0.0)
    spread = np.sqrt(np.square(centred).sum(0, dtype=np.float64) / count)
    return (centred / np.where(spread > 0, spread, 1.0)).astype(np.float32)


def _edges(time: np.ndarray, product: np.ndarray, neighbours: int) -> np.ndarray:
    """[2, E] int64: each node with the `neighbours` before it of the same product, in the order of their times."""
    found = []
    for one in np.unique(product):
        nodes = np.flatnonzero(product == one)
        nodes = nodes[np.argsort(time[nodes], kind="stable")]
        found += [np.stack([nodes[:-gap], nodes[gap:]]) for gap in range(1, min(neighbours, len(nodes) - 1) + 1)]
    return np.concatenate(found, axis=1) if found else np.zeros((2, 0), dtype=np.int64)
