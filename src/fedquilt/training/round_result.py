"""What one round gave: before anyone looked at the numbers, and after."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedquilt.training.engines.base import Evaluation


@dataclass(frozen=True, eq=False)
class RoundOutput:
    """What a round gave, before anyone looked at the numbers.

    Attributes:
        participants: [n] who took part.
        bytes_up, bytes_down: bytes by name; a scalar on the device where they depend on the numbers.
        report: how the clients stand, if they were evaluated.
    """

    round: int
    participants: Tensor
    bytes_up: dict[str, int | Tensor]
    bytes_down: dict[str, int | Tensor]
    report: Evaluation | None


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The same after the look: on the CPU.

    Attributes:
        report: [5, M] the figures of `Evaluation`, if there are any.
        val: the mean validation metric, scaled. better: whether it was the best so far.
    """

    round: int
    participants: Tensor
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    report: Tensor | None
    val: float
    better: bool


def mean(values: Tensor) -> Tensor:
    """The mean over the clients, the last axis, for whom the figure is defined: [..., M] -> [...] float64."""
    return values.double().nanmean(-1)
