"""Small runs: a graph of one's own, options that keep a run short, and a way to stop one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedquilt.graphs.graph import Graph
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


def stop_after(seed: int, round: int) -> Callable:
    """A watcher that presses Ctrl-C."""

    def watch(config: RunConfig, now: int, rounds: int) -> Callable:
        def on_round(record: dict[str, Any]) -> None:
            if (now, record["round"]) == (seed, round):
                raise KeyboardInterrupt

        return on_round

    return watch
