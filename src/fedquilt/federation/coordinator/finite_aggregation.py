"""Aggregation that is retried without the largest upload until its result is finite.

A hostile upload may pass every check by itself, and still lead the server to numbers that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.federation.message_checks import has_possible_numbers, upload_norm
from fedquilt.messages.message import Message, Sparse, Value, dense
from fedquilt.methods.base import Method, State
from fedquilt.training.round import Aggregate


class FiniteAggregation:
    """`Method.aggregate`, retried without the upload of the largest norm until downloads and server state are finite.

    Args:
        method: whose server it is.
        on_unused: called with the client and the reason for each upload that is not used.
        aggregate: what is tried in place of `Method.aggregate`.
    """

    def __init__(
        self, method: Method, on_unused: Callable[[int, str], None], aggregate: Aggregate | None = None
    ) -> None:
        self.method, self.on_unused = method, on_unused
        self.aggregate = aggregate or method.aggregate

    def __call__(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """The receivers' downloads; changes `server` in place."""
        while True:
            new_server = {name: tensor.clone() for name, tensor in server.items()}
            down = self._try(new_server, uploads, senders, receivers)
            if down is not None:
                server.update(new_server)
                return down
            if len(senders) == 1:
                raise FedquiltError(
                    "No upload of this round leads to finite numbers; see incidents.jsonl, and start the run again with the "
                    "same 'out' to go on."
                )
            rows = range(len(senders))
            largest = max(rows, key=lambda row: upload_norm(_take_rows(uploads, [row]), self.method.uploads))
            self.on_unused(int(senders[largest]), "leads to numbers that are not finite")
            others = [row for row in rows if row != largest]
            uploads, senders = _take_rows(uploads, others), senders[others]

    def _try(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message | None:
        """The downloads, or None where they or the server's state are not finite."""
        try:
            down = self.aggregate(server, uploads, senders, receivers)
        except (RuntimeError, ArithmeticError, ValueError):  # such as a matrix without a root
            return None
        finite = all(bool(torch.isfinite(tensor).all()) for tensor in server.values())
        return down if finite and has_possible_numbers(down) else None


def _take_rows(message: Message, rows: Sequence[int]) -> Message:
    """The uploads of some of the clients."""

    def take(value: Value) -> Value:
        taken = dense(value)[list(rows)]
        return Sparse(taken) if isinstance(value, Sparse) else taken

    return {name: take(value) for name, value in message.items()}
