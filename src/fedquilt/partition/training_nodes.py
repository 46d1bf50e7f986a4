"""Whether each client has something to learn from."""

from __future__ import annotations

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.partition.partition import Partition

TRAIN = 0
# Where so many clients lack training nodes, no other random split will do: chances multiply.
HOPELESS = 50


def training_nodes(partition: Partition, split: np.ndarray) -> np.ndarray:
    """[M] int64, how many training nodes each client holds.

    Args:
        partition: whose nodes are whose.
        split: [N] int8, 0 train, 1 validation, 2 test, -1 none.
    """
    if split.shape != (partition.total,):
        raise FedquiltError(
            f"The split has shape {split.shape}, but the partition's graph '{partition.graph}' has "
            f"{partition.total} nodes; draw the split on that graph."
        )
    held, owner = partition.flat()
    return np.bincount(owner[split[held] == TRAIN], minlength=partition.clients)


def lacking(partition: Partition, split: np.ndarray, minimum: int = 1) -> np.ndarray:
    """The clients that have fewer than `minimum` training nodes, in rising order."""
    return np.flatnonzero(training_nodes(partition, split) < minimum)


def training_nodes_check(partition: Partition, split: np.ndarray, minimum: int = 1, *, redraw: bool = True) -> None:
    """Refuse a split that leaves a client fewer than `minimum` training nodes.

    The error names the first such client (clients are numbered from 0) and says how many more there are and what helps:
    among other things to draw again where that can be done (`redraw`) and is not hopeless.
    """
    short = lacking(partition, split, minimum)
    if not short.size:
        return
    count = int(training_nodes(partition, split)[short[0]])
    has = "no training node" if count == 0 else f"{count} training node{'s' if count > 1 else ''}"
    wanted = f" where {minimum} are wanted" if minimum > 1 else ""
    others = short.size - 1
    more = f", and {others:,} more {'have' if others > 1 else 'has'} too few" if others else ""
    again = f"draw again with --min-train {minimum}, " if redraw and short.size <= HOPELESS else ""
    raise FedquiltError(
        f"Client {short[0]} of {partition.clients} has {has}{wanted}{more}; {again}use fewer clients, or a larger "
        "training share."
    )
