"""Malicious clients: they train like the others, but upload something false.

What they send, with `scale` s and honest weights w:

- *same-value*, *gaussian*: a false embedding, one random number throughout, or one for each entry, from N(0, s^2). The server
  compares clients by embeddings.
- *noise*: weights from N(0, s^2). *flip*: the weights -s w.
- *scaled*, *random*: with g what was received and d = w - g what training added, g + s d, and g + s |d| u, where u has length
  one and a random direction. Where nothing was received that w could be compared with, g is zero; of an upload that says how
  weights changed, d is the upload.
- *counts*: what was trained, behind counts of 10^9.
- *labels*: what was trained, on training labels that are turned round (`fedquilt.scenarios.poisoned_labels`).
- *own-rows* adapts to methods that average by evidence: the clients claim to have seen everything, once, and flip the patches
  in which they are then at least as many as the honest clients with evidence. In all other patches, and in what is averaged
  without evidence, they send what they trained.
- *inflated*: flipped weights, behind counts of 10^9 and descriptions (embeddings, distributions) that are the mean of the
  honest clients', so that servers which compare clients find them like everyone.
- *stealth* adapts to bounds: from what was received, g, a step -s (median |d|) d / |d|, where d is the mean of the honest
  clients' steps and median |d| their median length, behind the largest honest counts and the mean description. With s = 1 no
  length shows it. Where nothing was received (in round 0), what was trained.

The last three know what the honest clients send in the round, and malicious clients act together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedquilt.common.random_streams import torch_stream
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, Value, declared, dense
from fedquilt.messages.slicing import same_kind
from fedquilt.methods.base import EMBEDDING, Method, methods
from fedquilt.scenarios.kinds import AttackKind

ON_EMBEDDINGS = ("same-value", "gaussian")
CHANGES = "update."  # how the names of uploads begin that say what training added to weights
WEIGHTS = ("model.", CHANGES)  # and those of all that are about weights
INFLATED = 1e9  # the count that malicious clients claim

_NOTHING_WITH_THESE_SETTINGS = (
    "With these settings the method uploads no embedding to attack; leave out the attack, or choose settings with which "
    "it does."
)
# The count by which a weight is averaged patch by patch, and the patches' axis (`Method.evidence_of`).
EvidenceOf = Callable[[str], tuple[str, int] | None]


@dataclass(frozen=True)
class Attack:
    """An upload transform (`fedquilt.training.upload_transforms`) that replaces what malicious clients send.

    Attributes:
        kind: what they send.
        scale: how loud it is.
        malicious: the numbers of the malicious clients.
        seed: the seed of this training. Random numbers depend only on the seed, the round and the client.
        evidence_of: of the attacked method, for own-rows.
    """

    kind: AttackKind
    scale: float
    malicious: frozenset[int]
    seed: int
    evidence_of: EvidenceOf = lambda name: None

    def applied(
        self, uploads: Message, specs: Sequence[TensorSpec], round: int, senders: Tensor, down: Message
    ) -> Message:
        """Replace what malicious clients send in the uploads [n, ...] of the clients `senders` [n].

        A method may leave the embedding out in later rounds, but not in the first.
        """
        clients = senders.tolist()
        hostile = {place: client for place, client in enumerate(clients) if client in self.malicious}
        if self.kind in ON_EMBEDDINGS and EMBEDDING not in uploads:
            if round == 0:
                raise FedquiltError(_NOTHING_WITH_THESE_SETTINGS)
            return uploads
        if not hostile or not uploads or self.kind == "labels":  # in some phases of a method nothing is sent
            return uploads
        if self.kind in ON_EMBEDDINGS:
            changed = {EMBEDDING: self._drawn(uploads, EMBEDDING, hostile, round)}
        elif self.kind == "noise":
            changed = {name: self._drawn(uploads, name, hostile, round) for name in attacked(uploads, specs)}
        elif self.kind == "flip":
            changed = {name: self._flipped(uploads, name, hostile) for name in attacked(uploads, specs)}
        elif self.kind in ("scaled", "random"):
            changed = {name: self._step(uploads, name, hostile, round, down) for name in attacked(uploads, specs)}
        elif self.kind == "counts":
            changed = {name: self._claimed(uploads, name, hostile) for name in counted(uploads, specs)}
        elif self.kind == "own-rows":
            changed = self._own_rows(uploads, specs, hostile)
        else:
            changed = self._disguised(uploads, specs, hostile, down)
        return uploads | {name: same_kind(uploads[name], value) for name, value in changed.items()}

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

    def _drawn(self, uploads: Message, name: str, hostile: dict[int, int], round: int) -> Tensor:
        """The uploads called `name`, those of malicious clients drawn from N(0, scale^2)."""
        sent = dense(uploads[name]).clone()
        # Embeddings had their streams before weights could be attacked too.
        owner = ("values",) if name == EMBEDDING else ("values", name)
        for place, client in hostile.items():
            stream = torch_stream(self.seed, "attack", *owner, round, client)
            shape = () if self.kind == "same-value" else sent[place].shape
            sent[place] = (self.scale * torch.randn(shape, generator=stream)).to(sent).expand(sent[place].shape)
        return sent

    def _flipped(self, uploads: Message, name: str, hostile: dict[int, int]) -> Tensor:
        sent = dense(uploads[name]).clone()
        sent[list(hostile)] *= -self.scale
        return sent

    def _claimed(self, uploads: Message, name: str, hostile: dict[int, int]) -> Tensor:
        sent = dense(uploads[name]).clone()
        sent[list(hostile)] = INFLATED
        return sent

    def _step(self, uploads: Message, name: str, hostile: dict[int, int], round: int, down: Message) -> Tensor:
        """The uploads [n, ...], those of malicious clients with a step from what they received that is s times as long."""
        sent = dense(uploads[name]).clone()
        received = torch.zeros_like(sent)
        given = None if name.startswith(CHANGES) or name not in down else dense(down[name])
        if given is not None and given.shape in (sent.shape, sent.shape[1:]):
            received = given.to(sent).expand_as(sent)
        for place, client in hostile.items():
            step = sent[place] - received[place]
            if self.kind == "random":
                stream = torch_stream(self.seed, "attack", "direction", name, round, client)
                drawn = torch.randn(step.shape, generator=stream).to(sent)
                step = drawn * (torch.linalg.vector_norm(step) / torch.linalg.vector_norm(drawn).clamp_min(1e-12))
            sent[place] = received[place] + self.scale * step
        return sent

    def _own_rows(self, uploads: Message, specs: Sequence[TensorSpec], hostile: dict[int, int]) -> dict[str, Tensor]:
        """Claimed counts of at least one, and weights flipped where at most as many honest clients have evidence."""
        theirs = list(hostile)
        changed: dict[str, Tensor] = {}
        for name in attacked(uploads, specs):
            evidence = self.evidence_of(name)
            if evidence is None or evidence[0] not in uploads:
                continue
            count, axis = evidence
            claimed = dense(uploads[count]).clone()
            claimed[theirs] = claimed[theirs].clamp_min(1.0)
            voters = (claimed > 0).sum(0)  # [P]
            won = voters <= 2 * len(theirs)
            sent = dense(uploads[name]).clone()
            shape = [1] * (sent.dim() - 1)
            shape[axis] = -1
            sent[theirs] = torch.where(won.view(shape), -self.scale * sent[theirs], sent[theirs])
            changed |= {count: claimed, name: sent}
        return changed

    def _disguised(
        self, uploads: Message, specs: Sequence[TensorSpec], hostile: dict[int, int], down: Message
    ) -> dict[str, Tensor]:
        """False weights behind counts and descriptions by which they count as much as possible."""
        weights, changed = attacked(uploads, specs), {}
        first = next(iter(uploads.values()))
        honest = [place for place in range(len(dense(first))) if place not in hostile]
        for name, value in uploads.items():
            spec, sent = declared(specs, name), dense(value).clone()
            if name in weights and self.kind == "inflated":
                changed[name] = self._flipped(uploads, name, hostile)
            elif name in weights:
                change = name.startswith(CHANGES)
                changed[name] = self._against(
                    sent, honest, hostile, torch.zeros_like(sent) if change else down.get(name)
                )
            elif spec is not None and spec.count:
                sent[list(hostile)] = INFLATED if self.kind == "inflated" else sent[honest].amax(0).clamp_min(1.0)
                changed[name] = sent
            elif honest:
                sent[list(hostile)] = sent[honest].mean(0)
                changed[name] = sent
        return changed

    def _against(self, sent: Tensor, honest: list[int], hostile: dict[int, int], down: Value | None) -> Tensor:
        """The uploads [n, ...], those of malicious clients a step of median length against the honest clients' mean step."""
        if down is None or not honest:
            return sent
        received = dense(down).expand_as(sent)  # one for everyone, or one a client
        steps = sent[honest] - received[honest]
        mean = steps.mean(0)
        length = torch.linalg.vector_norm(steps.flatten(1), dim=1).median()
        step = self.scale * length * mean / torch.linalg.vector_norm(mean).clamp_min(1e-12)
        for place in hostile:
            sent[place] = received[place] - step
        return sent


def attacked(uploads: Message, specs: Sequence[TensorSpec]) -> list[str]:
    """The uploads that an attack on weights replaces: weights, or where a method sends none, all but counts and embeddings."""
    weights = [name for name in uploads if name.startswith(WEIGHTS)]

    def other(name: str) -> bool:
        spec = declared(specs, name)
        return name != EMBEDDING and not (spec is not None and spec.count)

    return weights or [name for name in uploads if other(name)]


def counted(uploads: Message, specs: Sequence[TensorSpec]) -> list[str]:
    """The uploads that are counts, such as of training nodes or of evidence."""
    return [name for name in uploads if (spec := declared(specs, name)) is not None and spec.count]


def check_attackable(method: Method, kind: AttackKind) -> None:
    """Raise an error if the method does not upload what the attack replaces, or not with its settings."""
    if kind not in ON_EMBEDDINGS:
        if not method.sent_uploads():
            raise FedquiltError(f"Method '{method.name}' uploads nothing to attack; leave out the attack.")
        if kind == "counts" and not any(spec.count for spec in method.sent_uploads()):
            raise FedquiltError(f"Method '{method.name}' uploads no counts to inflate; choose attack=scaled.")
        if kind == "labels" and not method.task.has_classes:
            raise FedquiltError(
                f"The task {method.task.name} has no classes that malicious clients could turn round; choose attack=flip."
            )
        if kind == "own-rows" and not method.averages_by_evidence():
            raise FedquiltError(
                f"Method '{method.name}' does not average by evidence, so that no rows can be owned; choose attack=flip."
            )
        return
    if not _declares(type(method)):
        others = [name for name, other in methods().items() if _declares(other)]
        raise FedquiltError(
            f"Method '{method.name}' uploads no embedding to attack; choose one that does: {', '.join(others)}."
        )
    if not method.sends(EMBEDDING):
        raise FedquiltError(_NOTHING_WITH_THESE_SETTINGS)


def _declares(method: type[Method]) -> bool:
    return declared(method.uploads, EMBEDDING) is not None
