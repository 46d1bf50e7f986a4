"""The pairs of nodes that a user asks about: read from a csv file with the columns source and target, and found in a graph."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedquilt.common.printable import shown
from fedquilt.common.read_limit import read_bounded
from fedquilt.errors import FedquiltError

SOURCE, TARGET = "source", "target"
_LARGEST = 2 * 2**30

Pairs = list[tuple[str, str]]
PairsLike = str | os.PathLike[str] | Sequence[tuple[object, object]]


def read_pairs(given: PairsLike) -> Pairs:
    """Pairs of nodes by their ids: from a csv file, or from Python, such as [("a", "b")]."""
    if isinstance(given, str | os.PathLike):
        return _from_file(Path(given))
    pairs = []
    for pair in given:
        if isinstance(pair, str) or len(pair) != 2:
            raise FedquiltError(f"{shown(pair)} is no pair of nodes; give pairs such as ('a', 'b').")
        pairs.append((str(pair[0]), str(pair[1])))
    if not pairs:
        raise FedquiltError("There is no pair of nodes to predict for; give some, such as [('a', 'b')].")
    return pairs


def _from_file(path: Path) -> Pairs:
    try:
        text = read_bounded(path, _LARGEST).decode("utf-8-sig")
    except OSError as error:
        raise FedquiltError(f"The pairs in {path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # too large, or no UTF-8
        raise FedquiltError(f"The pairs in {path} cannot be read: {error}.") from None
    first = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=";" if ";" in first else ",", skipinitialspace=True)
    names = [name.strip() for name in rows.fieldnames or []]
    for column in (SOURCE, TARGET):
        if names.count(column) != 1:
            raise FedquiltError(f"{path} needs one column '{column}'; begin it with the line source,target.")
    rows.fieldnames = names
    pairs = []
    for row in rows:
        source, target = (str(row[column] or "").strip() for column in (SOURCE, TARGET))
        if not source or not target:
            raise FedquiltError(f"{path}, line {rows.line_num}: a pair needs a source and a target; fill in both.")
        pairs.append((source, target))
    if not pairs:
        raise FedquiltError(f"{path} has no pairs of nodes; write one below the line source,target.")
    return pairs


def known_places(ids: np.ndarray | None, nodes: int) -> dict[str, int]:
    """The position of each node by its id as text; by its position where nodes have no ids."""
    return {str(node): place for place, node in enumerate(range(nodes) if ids is None else ids.tolist())}


def placed(pairs: Pairs, places: dict[str, int], where: str) -> np.ndarray:
    """[2, P] the positions of both nodes of each pair; an error names the first node that is not in the graph `where`."""
    for node in (node for pair in pairs for node in pair if node not in places):
        raise FedquiltError(f"There is no node {shown(node)} in {where}; write the ids of its nodes.")
    found = np.array([[places[source], places[target]] for source, target in pairs], dtype=np.int64).T
    alike = np.flatnonzero(found[0] == found[1])
    if alike.size:
        raise FedquiltError(f"The pair {shown(pairs[alike[0]][0])} has the same node twice; give two different nodes.")
    return found
