"""Malicious clients: they train like everyone, and lie about the embedding by which the server compares clients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.common.random_streams import torch_stream
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, Sparse, declared, dense
from fedquilt.methods.base import EMBEDDING, Method, methods
from fedquilt.scenarios.kinds import AttackKind

_NOTHING_WITH_THESE_SETTINGS = (
    "With these settings the method uploads no embedding to attack; leave out the attack, or choose settings with which "
    "it does."
)


@dataclass(frozen=True)
class Attack:
    """Who lies, and how.

    Attributes:
        kind: what is sent instead: "same-value", one number for all entries; "gaussian", a number an entry. Numbers are
            drawn from N(0, scale^2), anew in each round.
        scale: tau, their standard deviation.
        malicious: the numbers of the clients that lie.
        seed: the seed of this training; a client's lie depends on it, the round and the client, and on nothing else.
    """

    kind: AttackKind
    scale: float
    malicious: frozenset[int]
    seed: int

    def applied(self, uploads: Message, senders: Tensor, round: int) -> Message:
        """The uploads [n, ...] of the clients `senders` [n] as the server gets them; the given ones are not changed.

        A method may send the embedding in some rounds only, but it has to in the first.
        """
        if EMBEDDING not in uploads:
            if round == 0:
                raise FedquiltError(_NOTHING_WITH_THESE_SETTINGS)
            return uploads
        honest = uploads[EMBEDDING]
        sent = dense(honest).clone()
        for place, client in enumerate(senders.tolist()):
            if client in self.malicious:
                sent[place] = self._lie(sent[place].shape, client, round)
        return uploads | {EMBEDDING: Sparse(sent) if isinstance(honest, Sparse) else sent}

    def _lie(self, shape: torch.Size, client: int, round: int) -> Tensor:
        stream = torch_stream(self.seed, "attack", "values", round, client)
        drawn = torch.randn(() if self.kind == "same-value" else shape, generator=stream)
        return (self.scale * drawn).expand(shape)


def check_attackable(method: Method) -> None:
    """Refuse a method that has no embedding to lie about, or none with its settings."""
    if not _declares(type(method)):
        others = [name for name, other in methods().items() if _declares(other)]
        raise FedquiltError(
            f"Method '{method.name}' uploads no embedding to attack; choose one that does: {', '.join(others)}."
        )
    if not method.sends(EMBEDDING):
        raise FedquiltError(_NOTHING_WITH_THESE_SETTINGS)


def _declares(method: type[Method]) -> bool:
    return declared(method.uploads, EMBEDDING) is not None
