"""Asynchronous rounds: uploads come when they come, and the server aggregates as soon as enough of them wait in its buffer.

FedBuff: Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022. A client m that received w_m
and trained it to w_m' counts, s aggregations later, as if it had started from the server's present w and gone a shorter way:

    w + (w_m' - w_m) / sqrt(1 + s)

The method's own server then averages the buffered uploads as it does any others. That is for methods that send all clients the
same weights, which these train and send back (`check_buffers`).

Memory: every upload that is on its way or waits in the buffer is in the server's state, and so in its checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, declared, dense
from fedquilt.methods.base import Method, State
from fedquilt.methods.base_adam import MODEL

UPLOAD = "buffered.upload."  # in the server's state: what was sent, [B, ...]; of weights, how they changed
CLIENT, STARTED, ARRIVES, VERSION = "buffered.client", "buffered.started", "buffered.arrives", "buffered.version"


def check_buffers(method: Method) -> None:
    """Refuse a method whose uploads cannot wait."""
    weights = all(
        spec.count or (spec.weights and declared(method.downloads, spec.name) is not None)
        for spec in method.sent_uploads()
    )
    shared = all(spec.shared for spec in method.downloads)
    if not (method.averages() and weights and shared) or len(method.phases(method.context.rounds)) > 1:
        raise FedquiltError(
            "Asynchronous rounds are for methods that send all clients the same weights and average what comes back, in one "
            f"phase, which {method.title} does not; leave out upload_delay and buffer, or use a method such as fedavg."
        )


class BufferedUploads:
    """The buffer of a server. All of it is in the server's state, which is changed in place.

    Args:
        size: K, how many uploads the server waits for.
    """

    def __init__(self, method: Method, size: int) -> None:
        check_buffers(method)
        self.method, self.size = method, size

    def start(self, server: State) -> Message:
        """What is sent before the first aggregation: the common start, so that everyone's way begins where the server knows."""
        server[VERSION] = torch.zeros(1, dtype=torch.int64)
        shares: Callable[[str], bool] = getattr(self.method, "shares", lambda name: True)
        return {
            name: value
            for name, value in self.method.public_start().items()
            if self._is_weights(name) and (not name.startswith(MODEL) or shares(name.removeprefix(MODEL)))
        }

    def add(self, server: State, uploads: Message, senders: Tensor, arrives: Tensor, down: Message) -> None:
        """Put uploads [n, ...] of clients that trained on `down` on their way; they come in the rounds `arrives` [n]."""
        new: State = {
            CLIENT: senders.to(arrives),
            STARTED: server[VERSION].cpu().expand(len(senders)),
            ARRIVES: arrives,
        }
        for name, value in uploads.items():
            sent = dense(value)
            new[UPLOAD + name] = sent - dense(down[name]) if self._is_weights(name) else sent.clone()
        for name, rows in new.items():
            server[name] = torch.cat([server[name], rows.to(server[name])]) if name in server else rows.clone()

    def take(self, server: State, round: int, down: Message) -> tuple[Message, Tensor, Tensor] | None:
        """The uploads that have come, in the order of their rounds, as if they had started from `down`, if they are enough.

        Returns: the uploads [k, ...], their clients [k], and how many aggregations each has missed, [k] int64; None: too few.
        """
        if ARRIVES not in server:
            return None
        come = server[ARRIVES] <= round
        if int(come.sum()) < self.size:
            return None
        order = torch.nonzero(come).ravel()
        order = order[torch.argsort(server[ARRIVES][order], stable=True)]
        stale = server[VERSION].cpu() - server[STARTED][order]
        discount = 1.0 / (1.0 + stale).sqrt()
        uploads: Message = {}
        for name in sorted(name for name in server if name.startswith(UPLOAD)):  # the same order after a resume
            rows, sent = server[name][order.to(server[name].device)], name.removeprefix(UPLOAD)
            if self._is_weights(sent):
                rows = dense(down[sent]) + rows * discount.to(rows).view(-1, *[1] * (rows.dim() - 1))
            uploads[sent] = rows
        clients = server[CLIENT][order]
        for name in [name for name in server if name.startswith(UPLOAD) or name in (CLIENT, STARTED, ARRIVES)]:
            rest = server[name][~come.to(server[name].device)]
            if len(rest):
                server[name] = rest
            else:
                del server[name]
        server[VERSION] += 1
        return uploads, clients, stale

    def _is_weights(self, name: str) -> bool:
        """Whether an upload is weights, which the server sends too."""
        spec = declared(self.method.uploads, name)
        return spec is not None and spec.weights and self.method.sends(name)
