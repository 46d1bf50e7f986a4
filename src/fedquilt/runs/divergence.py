"""Why a training diverged: mostly a feature in raw units, of some client. Says which, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedquilt.cohort.client import Client
from fedquilt.errors import DivergedError
from fedquilt.graphs.column_sums import row_blocks
from fedquilt.graphs.graph import Graph

RAW = 30.0  # a feature with values of this size is in raw units; prepared ones are smaller


def explained(error: DivergedError, clients: Sequence[Client]) -> DivergedError:
    """An error that names the feature whose scale is the cause; `error` itself where none is.

    `clients` are all of the training, as they trained.
    """
    named = set(error.clients)
    found = [
        (size, client.id, column)
        for client in clients
        if client.id in named or not named
        for size, column in [largest_feature(client.graph)]
    ]
    size, number, column = max(found, default=(0.0, 0, 0))
    if size < RAW:
        return error
    names = clients[0].graph.feature_names
    feature = f"'{names[column]}'" if names is not None else f"number {column}"
    return DivergedError(
        error.what,
        error.clients,
        f"the feature {feature} of client {number} goes up to {size:.3g}: bring features to one scale (--prepare standard), "
        "or use a smaller learning rate (--set lr=...)",
    )


def largest_feature(graph: Graph) -> tuple[float, int]:
    """The largest size of a value among the features, and its column."""
    if not graph.nodes or not graph.features:
        return 0.0, 0
    if isinstance(graph.x, np.ndarray):
        sizes = np.max([np.abs(graph.x[rows]).max(axis=0) for rows in row_blocks(graph.x)], axis=0)
    else:
        sizes = abs(graph.x).max(axis=0).toarray().ravel()
    return float(sizes.max()), int(sizes.argmax())
