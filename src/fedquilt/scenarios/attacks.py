"""Malicious clients: they train like the others, but upload a false embedding. The server compares clients by embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.common.random_streams import torch_stream
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, declared, dense
from fedquilt.messages.slicing import same_kind
from fedquilt.methods.base import EMBEDDING, Method, methods
from fedquilt.scenarios.kinds import AttackKind

_NOTHING_WITH_THESE_SETTINGS = (
    "With these settings the method uploads no embedding to attack; leave out the attack, or choose settings with which "
    "it does."
)


@dataclass(frozen=True)
class Attack:
    """An upload transform (`fedquilt.training.upload_transforms`) that replaces the embeddings of malicious clients.

    Attributes:
        kind: "same-value" sends one number in all entries, "gaussian" a number for each entry, drawn from N(0, scale^2)
            in every round.
        scale: tau, the standard deviation.
        malicious: the numbers of the malicious clients.
        seed: the seed of this training. A false embedding depends only on the seed, the round and the client.
    """

    kind: AttackKind
    scale: float
    malicious: frozenset[int]
    seed: int

    def applied(
        self, uploads: Message, specs: Sequence[TensorSpec], round: int, senders: Tensor, down: Message
    ) -> Message:
        """Replace the embeddings of malicious clients in the uploads [n, ...] of the clients `senders` [n].

        A method may leave the embedding out in later rounds, but not in the first.
        """
        if EMBEDDING not in uploads:
            if round == 0:
                raise FedquiltError(_NOTHING_WITH_THESE_SETTINGS)
            return uploads
        honest = uploads[EMBEDDING]
        sent = dense(honest).clone()
        for place, client in enumerate(senders.tolist()):
            if client in self.malicious:
                sent[place] = self._false_embedding(sent[place].shape, client, round)
        return uploads | {EMBEDDING: same_kind(honest, sent)}

    def record_entries(self, round: int) -> dict[str, float]:
        """Return no entries."""
        return {}

    def summary_entries(self, rounds: int) -> dict[str, Any]:
        """Return no entries; only the groups are reported."""
        return {}

    def groups(self, clients: int) -> dict[str, list[int]]:
        """Return the numbers of the honest and of the malicious clients."""
        return {
            "honest": [m for m in range(clients) if m not in self.malicious],
            "malicious": [m for m in range(clients) if m in self.malicious],
        }

    def _false_embedding(self, shape: torch.Size, client: int, round: int) -> Tensor:
        stream = torch_stream(self.seed, "attack", "values", round, client)
        drawn = torch.randn(() if self.kind == "same-value" else shape, generator=stream)
        return (self.scale * drawn).expand(shape)


def check_attackable(method: Method) -> None:
    """Raise an error if the method uploads no embedding, or none with its settings."""
    if not _declares(type(method)):
        others = [name for name, other in methods().items() if _declares(other)]
        raise FedquiltError(
            f"Method '{method.name}' uploads no embedding to attack; choose one that does: {', '.join(others)}."
        )
    if not method.sends(EMBEDDING):
        raise FedquiltError(_NOTHING_WITH_THESE_SETTINGS)


def _declares(method: type[Method]) -> bool:
    return declared(method.uploads, EMBEDDING) is not None
