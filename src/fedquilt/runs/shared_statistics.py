"""Shared statistics of features: the clients' sums cross to the server, and one preparation for all comes back.

Each client sends, of every column, sums over its nodes (`ColumnSums`); nothing of a single node. The server adds them, which
gives federated count, mean and variance. In a simulation only: sites of a federation prepare by their own statistics, and send
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch

from fedquilt.graphs.arrays import Features
from fedquilt.graphs.column_sums import ColumnSums
from fedquilt.graphs.preparation import Preparation
from fedquilt.messages.message import Message, TensorSpec, check, message_bytes

UPLOADS = (
    TensorSpec("count", "How many nodes the client has.", count=True),
    TensorSpec("total", "With the count, the mean of each feature over the client's nodes, outliers clipped."),
    TensorSpec("squares", "With the others, how much each feature varies over the client's nodes."),
    TensorSpec("other", "Of each feature, at how many of the client's nodes it is neither zero nor one."),
)
DOWNLOADS = (
    TensorSpec("centre", "The mean of each feature over all clients.", shared=True),
    TensorSpec("scale", "The standard deviation of each feature over all clients.", shared=True),
)
Bytes = dict[str, dict[str, int]]


def shared_preparation(features: Sequence[Features]) -> tuple[Preparation, Bytes]:
    """The preparation by sums over the features [n_m, F] of M clients, and the bytes up and down by name, of all of them."""
    sums = [ColumnSums.of(x) for x in features]
    uploads: Message = {
        part.name: torch.stack([torch.from_numpy(getattr(one, part.name)) for one in sums])
        for part in fields(ColumnSums)
    }
    check(uploads, UPLOADS, "prepare", "upload")
    how = Preparation.of_sums(ColumnSums.added(sums))
    downloads: Message = {name: torch.from_numpy(getattr(how, name)) for name in ("centre", "scale")}
    check(downloads, DOWNLOADS, "prepare", "download")
    return how, {
        "up": message_bytes(uploads, UPLOADS, len(sums)),
        "down": message_bytes(downloads, DOWNLOADS, len(sums)),
    }
