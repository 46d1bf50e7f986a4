"""What the round loop asks of an engine, whoever the clients are and wherever they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message
from fedquilt.methods.base import State


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Losses and metrics of all clients, each [M] float32 on the engine's device; NaN where a client has nothing to evaluate.

    Metrics are not scaled (`Metric.scale`). A client that sat the round out keeps its last values.

    Attributes:
        sound: 1 where a client's outputs are finite wherever metrics read them, else 0: then its other values mean nothing.
    """

    train_loss: Tensor
    val_loss: Tensor
    val: Tensor
    test: Tensor
    sound: Tensor

    def stacked(self) -> Tensor:
        """All figures as one tensor, [5, M]."""
        return torch.stack([getattr(self, name) for name in EVALUATION_FIELDS])

    def check_sound(self, first: int = 0) -> None:
        """Refuse models that give no numbers: an argmax or a rank of them would look like a result.

        `first` is the number of the first client.
        """
        wrong = (torch.nonzero(self.sound == 0).ravel() + first).tolist()
        if wrong:
            raise diverged(wrong)


EVALUATION_FIELDS = tuple(field.name for field in fields(Evaluation))


def diverged(clients: Sequence[int]) -> FedquiltError:
    """The error that some clients' models give no finite numbers any more."""
    which = ", ".join(map(str, clients[:5])) + (" and others" if len(clients) > 5 else "")
    models = "the models of clients" if len(clients) > 1 else "the model of client"
    return FedquiltError(
        f"Training diverged: no finite numbers come from {models} {which} any more; "
        "use a smaller learning rate (--set lr=...)."
    )


class Engine(Protocol):
    """Carries rounds out. Messages have the participants, in rising order, as leading axis.

    Attributes:
        device: where downloads are expected and uploads come from.
        records: whether its rounds can be recorded and replayed (`fedquilt.devices.cuda_graph`).
        phases: seconds of the last round by what was done at the clients (train, evaluate); empty where nobody can tell.
        answered: [n] whose uploads the last round gave, in rising order; None: all participants'.
        private: whether clients keep what they have to themselves: then `personal` gives nothing, and `state` only what the
            engine itself needs to go on.
        told: what else clients told of the last round, for its record.
    """

    device: torch.device
    records: bool
    phases: dict[str, float]
    answered: Tensor | None
    private: bool
    told: dict[str, float]

    def evaluate(self) -> Evaluation:
        """How all clients stand with the models they have now."""

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """Hand `down` to the participants, let them train, collect their uploads; with `evaluate`, how they stand."""

    def personal(self) -> State:
        """All clients' personal models now, leading axis the client. Valid until the next round: copy to keep."""

    def forget(self) -> None:
        """Forget what is held of the personal models: they are to be made anew from what the clients keep."""

    def state(self) -> State:
        """All that must be saved to go on later."""

    def restore(self, state: State) -> None:
        """Go on from a saved state."""
