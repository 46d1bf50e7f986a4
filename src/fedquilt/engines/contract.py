"""What the round loop asks of an engine, whoever the clients are and wherever they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedquilt.methods.contract import State
from fedquilt.privacy.crossing import Message


@dataclass(frozen=True, eq=False)
class Report:
    """How all clients stand, each [M] float32 on the CPU; NaN where a client has no such node.

    Metrics are shares in 0..1. A client that sat the round out keeps its last figures.
    """

    train_loss: Tensor
    val_loss: Tensor
    val: Tensor
    test: Tensor


class Engine(Protocol):
    """Carries rounds out. Messages have the participants, in rising order, as leading axis.

    Attributes:
        device: where downloads are expected and uploads come from.
    """

    device: torch.device

    def evaluate(self) -> Report:
        """How all clients stand with the models they have now."""

    def round(self, round: int, participants: Tensor, down: Message, evaluate: bool) -> tuple[Message, Report | None]:
        """Hand `down` to the participants, let them train, collect their uploads; with `evaluate`, how they stand."""

    def personal(self) -> State:
        """All clients' personal models now, leading axis the client. Valid until the next round: copy to keep."""

    def state(self) -> State:
        """All that must be saved to go on later."""

    def restore(self, state: State) -> None:
        """Go on from a saved state."""
