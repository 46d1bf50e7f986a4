"""`Partition`: the nodes of one graph that each client holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Partition:
    """One graph cut into clients.

    Attributes:
        nodes: for each client the sorted, distinct indices of its nodes; its edges are those between them.
        kind: the name of the kind it was made by.
        seed: the seed it was drawn from.
        graph: the name of the graph it cuts.
        total: the number of nodes of that graph.
        fingerprint: hash of that graph's edges, so that a saved partition is never used on another graph.
        settings: the kind's settings, stored with the partition; plain JSON values.
    """

    nodes: list[np.ndarray]
    kind: str
    seed: int
    graph: str
    total: int
    fingerprint: str
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def clients(self) -> int:
        """M, the number of clients."""
        return len(self.nodes)

    @property
    def sizes(self) -> np.ndarray:
        """[M] int64, how many nodes each client holds."""
        return np.array([len(held) for held in self.nodes], dtype=np.int64)

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Concatenate the nodes of all clients, and return them with the client of each: two int64 arrays of equal length."""
        held = np.concatenate([np.zeros(0, dtype=np.int64), *self.nodes])
        return held, np.repeat(np.arange(self.clients), self.sizes)
