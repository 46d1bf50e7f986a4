"""The server's step, undone where nobody could go on from what comes of it: a hostile upload may pass every check by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.federation.message_checks import length, sound
from fedquilt.messages.message import Message, Sparse, Value, dense
from fedquilt.methods.base import Method, State


class Guarded:
    """`Method.aggregate` on uploads of which the longest are left out until downloads and the server's state are finite.

    Args:
        method: whose server it is.
        left_out: told of each site whose upload is not used, and why.
    """

    def __init__(self, method: Method, left_out: Callable[[int, str], None]) -> None:
        self.method, self.left_out = method, left_out

    def __call__(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """What the receivers are sent, changing `server` in place."""
        while True:
            tried = {name: tensor.clone() for name, tensor in server.items()}
            down = self._tried(tried, uploads, senders, receivers)
            if down is not None:
                server.update(tried)
                return down
            if len(senders) == 1:
                raise FedquiltError(
                    "No upload of this round leads to finite numbers; see incidents.jsonl, and start the run again with the "
                    "same 'out' to go on."
                )
            places = range(len(senders))
            longest = max(places, key=lambda place: length(_rows(uploads, [place]), self.method.uploads))
            self.left_out(int(senders[longest]), "leads to numbers that are not finite")
            others = [place for place in places if place != longest]
            uploads, senders = _rows(uploads, others), senders[others]

    def _tried(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message | None:
        """The downloads, if they and the server's state can be used."""
        try:
            down = self.method.aggregate(server, uploads, senders, receivers)
        except (RuntimeError, ArithmeticError, ValueError):  # such as a matrix that has no roots
            return None
        whole = all(bool(torch.isfinite(tensor).all()) for tensor in server.values())
        return down if whole and sound(down) else None


def _rows(message: Message, places: Sequence[int]) -> Message:
    """Some clients' part of their uploads."""

    def cut(value: Value) -> Value:
        rows = dense(value)[list(places)]
        return Sparse(rows) if isinstance(value, Sparse) else rows

    return {name: cut(value) for name, value in message.items()}
