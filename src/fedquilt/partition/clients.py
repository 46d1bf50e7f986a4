"""Whether each client has something to learn from."""

from __future__ import annotations

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.partition.partition import Partition

TRAIN = 0


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


def enough(partition: Partition, split: np.ndarray, minimum: int = 1) -> bool:
    """Whether each client has at least `minimum` training nodes."""
    return bool((training_nodes(partition, split) >= minimum).all())


def training_nodes_check(partition: Partition, split: np.ndarray, minimum: int = 1) -> None:
    """Refuse a split that leaves a client fewer than `minimum` training nodes.

    The error names the first such client; clients are numbered from 0.
    """
    counts = training_nodes(partition, split)
    short = np.flatnonzero(counts < minimum)
    if not short.size:
        return
    client = short[0]
    count = int(counts[client])
    has = "no training node" if count == 0 else f"{count} training node{'s' if count > 1 else ''}"
    wanted = f" where {minimum} are wanted" if minimum > 1 else ""
    raise FedquiltError(
        f"Client {client} of {partition.clients} has {has}{wanted}; draw again with --min-train {minimum}, "
        "use fewer clients, or a larger training share."
    )
