"""A finished run as Python has it: what came of each seed, and the server that admits more clients."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import State, find_method
from fedquilt.scenarios.newcomers import Admitted, FrozenServer, check_admits
from fedquilt.training.loop import Record

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(eq=False)
class Run:
    """A finished run.

    Attributes:
        result: what result.json holds: means over seeds and a line a seed, metrics in percent.
        records: by seed, a record a round.
        models: by seed, the personal models of the best validation round; leading axis the client.
        facts: by seed, what one needs to know to use them: the method, its settings, its task; see `fedquilt.export`.
        similarities: by seed, the [M, M] similarity between clients by round (-1: the best round), if the method has one;
            [K, M, M] where it has one for each latent factor.
        findings: by seed, what the method found worth looking at after the last round, by name; see `Method.findings`.
        servers: by seed, the server after the last round, where the method admits clients after training.
        folder: where it was written, if anywhere.
    """

    result: dict[str, Any]
    records: dict[int, list[Record]] = field(default_factory=dict)
    models: dict[int, State] = field(default_factory=dict)
    facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    similarities: dict[int, dict[int, np.ndarray]] = field(default_factory=dict)
    findings: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    servers: dict[int, FrozenServer] = field(default_factory=dict)
    folder: Path | None = None

    def admit(
        self, graph: str | os.PathLike[str] | Graph | Data, split: str | None = None, seed: int | None = None
    ) -> Admitted:
        """Give a model to the owner of a graph that was not there in training; nothing of the run changes.

        Args:
            graph: a name, a path, a `Graph`, or PyTorch Geometric's `Data`, with the run's features and classes.
            split: such as "40/30/30", "5fold" or "given"; None: the graph's own where it has one, else the run's.
            seed: which of the run's seeds admits it, and draws the split; None: the first.
        """
        check_admits(find_method(self.result["method"]))
        if not self.servers:
            raise FedquiltError("The run kept no server that could admit anyone; train it again.")
        chosen = next(iter(self.servers)) if seed is None else seed
        if chosen not in self.servers:
            seeds = ", ".join(map(str, self.servers))
            raise FedquiltError(f"The run has no server of seed {chosen}; choose one of: {seeds}.")
        return self.servers[chosen].admit_graph(load_graph(graph)[0], split, chosen)

    def __repr__(self) -> str:
        r = self.result
        test = f"no test {r['metric']}"
        if r["test_mean"] is not None:  # it is where the metric is undefined on the test nodes
            spread = f" ± {r['test_std']:.2f}" if len(r["seeds"]) > 1 else ""
            test = f"test {r['metric']} {r['test_mean']:.2f}{spread}"
        return f"<Run {r['method']} on {r['dataset']}, {r['clients']} clients: {test}>"
