"""Small runs: a graph of one's own, options that keep a run short, and a way to stop one."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedquilt.graphs.graph import Graph
from fedquilt.runs.callbacks import Callback
from fedquilt.runs.config import RunConfig
from support.clients import random_edges

SMALL: dict[str, Any] = {"clients": 3, "rounds": 3, "device": "cpu", "settings": {"hidden": 8}}


def own_graph(nodes: int = 90, classes: int = 3, masks: bool = False) -> Graph:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, nodes)
    x = (np.eye(classes)[y] * 2 + rng.standard_normal((nodes, classes))).astype(np.float32)
    parts = np.arange(nodes) % 3
    given = {part: parts == code for code, part in enumerate(("train", "val", "test"))} if masks else None
    return Graph("mine", random_edges(rng, nodes, 0.1), x, y, classes, masks=given)


class Seen(Callback):
    """Remembers each call: (method, seed, rounds) at the start, (seed, round) for a round, (seed, summary) at the end."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.seed = -1

    def start(self, config: RunConfig, seed: int, rounds: int) -> None:
        self.seed = seed
        self.calls.append((config.method, seed, rounds))

    def round(self, record: dict[str, Any]) -> None:
        self.calls.append((self.seed, record["round"]))

    def end(self, summary: dict[str, Any] | None) -> None:
        self.calls.append((self.seed, summary if summary is None else "done"))

    @property
    def rounds(self) -> list[tuple[int, int]]:
        return [call for call in self.calls if len(call) == 2 and isinstance(call[1], int)]


class StopAfter(Seen):
    """Raises an error after a round."""

    def __init__(self, seed: int, round: int, error: type[BaseException] | BaseException) -> None:
        super().__init__()
        self.at, self.error = (seed, round), error

    def round(self, record: dict[str, Any]) -> None:
        super().round(record)
        if self.calls[-1] == self.at:
            raise self.error


def stop_after(seed: int, round: int) -> Callback:
    """A callback that presses Ctrl-C."""
    return StopAfter(seed, round, KeyboardInterrupt)
