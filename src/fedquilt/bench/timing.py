"""Time several sides in turns, so that other load on the machine slows all of them and their ratios hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import torch

# A turn is several rounds, because on CUDA metrics are copied to the host only every few rounds.
ROUNDS_A_TURN = 5
WARM_UP, WARM_UP_CUDA = 3, 8

Name = TypeVar("Name")


class Side(Protocol):
    """Something to time: one of our trainings, or a plain loop."""

    def advance(self, rounds: int) -> None:
        """Train `rounds` more rounds."""


def take_turns(
    sides: Mapping[Name, Side], turns: int, device: torch.device, on_turn: Callable[[int], None] = lambda done: None
) -> dict[Name, list[float]]:
    """Measure the milliseconds per round of each side in each turn, after warm-up rounds.

    `on_turn` is called between turns with the number of turns done; its own time is not counted.
    """
    for side in sides.values():
        side.advance(WARM_UP_CUDA if device.type == "cuda" else WARM_UP)
    times: dict[Name, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name, side in sides.items():
            times[name].append(_seconds(side, ROUNDS_A_TURN, device) * 1e3 / ROUNDS_A_TURN)
        on_turn(turn + 1)
    return times


def _seconds(side: Side, rounds: int, device: torch.device) -> float:
    _finish(device)
    began = time.perf_counter()
    side.advance(rounds)
    _finish(device)
    return time.perf_counter() - began


def _finish(device: torch.device) -> None:
    """Wait until the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
