"""Count the training nodes of each client, and refuse a split that leaves a client with too few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.partition.partition import Partition

TRAIN = 0
# If more clients than this have too few training nodes, drawing another random split will not help.
MAX_SHORT_CLIENTS = 50


def training_nodes(partition: Partition, split: np.ndarray) -> np.ndarray:
    """Count the training nodes of each client: [M] int64.

    Args:
        partition: the nodes of each client.
        split: [N] int8, 0 train, 1 validation, 2 test, -1 none.
    """
    if split.shape != (partition.total,):
        raise FedquiltError(
            f"The split has shape {split.shape}, but the partition's graph '{partition.graph}' has "
            f"{partition.total} nodes; draw the split on that graph."
        )
    held, owner = partition.flat()
    return np.bincount(owner[split[held] == TRAIN], minlength=partition.clients)


def short_clients(partition: Partition, split: np.ndarray, minimum: int = 1) -> np.ndarray:
    """The numbers of the clients that have fewer than `minimum` training nodes, sorted."""
    return np.flatnonzero(training_nodes(partition, split) < minimum)


def worth_redrawing(partition: Partition, split: np.ndarray, minimum: int) -> bool:
    """Return whether another draw may help: some clients have fewer than `minimum` training nodes, but not too many."""
    return 0 < short_clients(partition, split, minimum).size <= MAX_SHORT_CLIENTS


def check_training_nodes(
    partition: Partition,
    split: np.ndarray,
    minimum: int = 1,
    *,
    redraw: bool = True,
    names: Sequence[str] | None = None,
) -> None:
    """Refuse a split that leaves a client fewer than `minimum` training nodes.

    The error names the first such client (by its number from 0 unless clients have `names`), says how many more there are, and
    what to do. It suggests another draw only if `redraw` is possible and few clients are affected.
    """
    short = short_clients(partition, split, minimum)
    if not short.size:
        return
    count = int(training_nodes(partition, split)[short[0]])
    has = "no training node" if count == 0 else f"{count} training node{'s' if count > 1 else ''}"
    wanted = f" where {minimum} are wanted" if minimum > 1 else ""
    others = short.size - 1
    more = f", and {others:,} more {'have' if others > 1 else 'has'} too few" if others else ""
    again = f"draw again with --min-train {minimum}, " if redraw and short.size <= MAX_SHORT_CLIENTS else ""
    who = f"'{names[short[0]]}'" if names else f"{short[0]} of {partition.clients}"
    raise FedquiltError(f"Client {who} has {has}{wanted}{more}; {again}use fewer clients, or a larger training share.")
