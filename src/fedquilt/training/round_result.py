"""The outcome of one round: on the device (`RoundOutput`), and after it was read (`RoundResult`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from fedquilt.messages.message import Message
from fedquilt.training.engines.base import Evaluation


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The outcome of a round, on the CPU.

    Attributes:
        round: its number.
        participants: [n] the clients whose uploads were used.
        bytes_up, bytes_down: bytes by the name of the message.
        metrics: [5, M] the fields of `Evaluation`; None where the round was not evaluated.
        diagnostics: the numbers of `Method.diagnostics`, by name.
        val: the mean validation metric, scaled.
        better: whether it is the best so far.
    """

    round: int
    participants: Tensor
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    metrics: Tensor | None
    diagnostics: dict[str, float]
    val: float
    better: bool


@dataclass(frozen=True, eq=False)
class RoundOutput:
    """The outcome of a round, on the device: nothing was copied to the host, and the host did not wait.

    Attributes:
        round: its number.
        participants: [n] the clients whose uploads were used.
        bytes_up, bytes_down: bytes by the name of the message; a scalar on the device where they depend on values.
        evaluation: the clients' metrics, where the round was evaluated.
        diagnostics: the scalars of `Method.diagnostics`, by name.
        down: the download of the next round.
    """

    round: int
    participants: Tensor
    bytes_up: dict[str, int | Tensor]
    bytes_down: dict[str, int | Tensor]
    evaluation: Evaluation | None
    diagnostics: dict[str, Tensor] = field(default_factory=dict)
    down: Message = field(default_factory=dict)

    def counts_on_device(self) -> list[Tensor]:
        """The byte counts that depend on values, uploads first."""
        return [
            count for side in (self.bytes_up, self.bytes_down) for count in side.values() if isinstance(count, Tensor)
        ]

    def read(self, val: float = math.nan, better: bool = False) -> RoundResult:
        """Copy the outcome to the CPU. `val` and `better` as in `RoundResult`."""
        return RoundResult(
            round=self.round,
            participants=self.participants,
            bytes_up={name: int(count) for name, count in self.bytes_up.items()},
            bytes_down={name: int(count) for name, count in self.bytes_down.items()},
            metrics=None if self.evaluation is None else self.evaluation.stacked().cpu(),
            diagnostics={name: float(value) for name, value in self.diagnostics.items()},
            val=val,
            better=better,
        )


def mean(values: Tensor) -> Tensor:
    """The mean over the clients for which the metric is defined: [..., M] -> [...] float64."""
    return values.double().nanmean(-1)
