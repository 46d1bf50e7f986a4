from __future__ import annotations

import time

import torch

from fedquilt.bench.timing import ROUNDS_A_TURN, WARM_UP, take_turns


class Recorded:
    """A side that writes down when it was asked for how many rounds, each of which takes a while."""

    def __init__(self, name: str, log: list[tuple[str, int]], seconds: float = 0.0) -> None:
        self.name, self.log, self.seconds = name, log, seconds

    def advance(self, rounds: int) -> None:
        self.log.append((self.name, rounds))
        time.sleep(rounds * self.seconds)


def test_sides_warm_up_and_take_turns() -> None:
    log: list[tuple[str, int]] = []
    done: list[int] = []
    sides = {name: Recorded(name, log) for name in "ab"}
    times = take_turns(sides, 2, torch.device("cpu"), done.append)
    assert log == [("a", WARM_UP), ("b", WARM_UP), *[("a", ROUNDS_A_TURN), ("b", ROUNDS_A_TURN)] * 2]
    assert done == [1, 2]
    assert {name: len(turns) for name, turns in times.items()} == {"a": 2, "b": 2}


def test_times_are_milliseconds_a_round() -> None:
    times = take_turns({"a": Recorded("a", [], seconds=0.002)}, 1, torch.device("cpu"))
    assert times["a"][0] >= 2
