"""The newest upload of each client, kept at the server for methods that average them all (`Method.averages_newest`).

Where only some clients send in a round, a server that makes an average for each client has two choices. Over this round's
senders alone, a client that returns is given an average without its own model, of other clients each time. Over what everyone
sent last, its own model and all others count in every round, as old as they are. That is the memory of MIFA (Gu et al., Fast
Federated Learning in the Presence of Arbitrary Device Unavailability, NeurIPS 2021), here for averages that differ from client
to client.

Memory: one upload of every client is in the server's state, and so in its checkpoints. Until everyone has sent once, the
uploads of those who did are copied in each round.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.devices.offload import is_offloaded, offloaded_zeros
from fedquilt.messages.message import Message, dense
from fedquilt.messages.slicing import same_kind
from fedquilt.methods.base import Method, State

# In the server's state: the newest upload of each client by its name, [M, ...]; and who ever sent one, [M] bool.
NEWEST, HEARD = "newest.", "heard"


class NewestUploads:
    """Aggregates the newest uploads of all clients that ever sent one. They are in the server's state, changed in place.

    Attributes:
        heard: [h] the clients of which an upload arrived in this round or before, in rising order, where a CUDA graph reads
            them; None: as the server's state says.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.heard: Tensor | None = None

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """As `Method.aggregate`, with all clients that ever sent as senders. Where all send now, nothing is different."""
        clients = self.method.context.clients
        self._store(server, uploads, senders)
        if len(senders) == clients:
            return self.method.aggregate(server, uploads, senders, receivers)
        heard = torch.nonzero(server[HEARD]).ravel() if self.heard is None else self.heard
        newest: Message = {}
        for name, value in uploads.items():
            stack = server[NEWEST + name]
            rows = stack if len(heard) == clients else stack[heard.to(stack.device)]
            newest[name] = same_kind(value, rows)
        return self.method.aggregate(server, newest, heard, receivers)

    def _store(self, server: State, uploads: Message, senders: Tensor) -> None:
        """Replace what the senders sent before."""
        clients = self.method.context.clients
        for name, value in uploads.items():
            sent = dense(value)
            if NEWEST + name not in server:
                shape = (clients, *sent.shape[1:])
                server[NEWEST + name] = (
                    offloaded_zeros(shape, sent.dtype) if is_offloaded(sent) else sent.new_zeros(shape)
                )
            stack = server[NEWEST + name] = server[NEWEST + name].to(sent.device)
            stack.index_copy_(0, senders.to(sent.device), sent)
        if HEARD not in server:
            server[HEARD] = torch.zeros(clients, dtype=torch.bool, device=senders.device)
        server[HEARD].index_fill_(0, senders, True)
