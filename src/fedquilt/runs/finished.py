"""A finished run in Python: the records, models and server of each seed, in memory or read from a run folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedquilt.common.registry import known_plugins, load_plugins
from fedquilt.datasets.load import load_graph
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import State, find_method, methods
from fedquilt.runs.folder import RunFolder, SeedFolder
from fedquilt.runs.frames import client_rows, frame, history_rows, html_table
from fedquilt.runs.result import client_titles
from fedquilt.runs.run_plot import run_figure
from fedquilt.scenarios.newcomers import Admitted, FrozenServer, check_admits
from fedquilt.training.round_store import Record

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure
    from torch_geometric.data import Data

    from fedquilt.graphs.protocol import Protocol
    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.given_pairs import PairsLike
    from fedquilt.runs.predictions import Predictions


@dataclass(eq=False)
class Run:
    """A finished run.

    Attributes:
        result: the content of result.json: means over seeds and an entry per seed, metrics in percent.
        records: by seed, one record per round.
        models: by seed, the personal models of the best validation round; leading axis the client.
        facts: by seed, what is needed to use the models: method, settings, task; see `fedquilt.export`.
        similarities: by seed and round (-1: the best round), the [M, M] similarity between clients, where the method has one;
            [K, M, M] where it has one per latent factor.
        findings: by seed and name, what the method computed for figures after the last round; see `Method.findings`.
        servers: by seed, the server after the last round, where the method admits clients after training.
        folder: the run folder; None for a run in memory.
        origin: of a run in memory, its configuration and the graph that was given as an object; `predict` cuts it again.
    """

    result: dict[str, Any]
    records: dict[int, list[Record]] = field(default_factory=dict)
    models: dict[int, State] = field(default_factory=dict)
    facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    similarities: dict[int, dict[int, np.ndarray]] = field(default_factory=dict)
    findings: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    servers: dict[int, FrozenServer] = field(default_factory=dict)
    folder: Path | None = None
    origin: tuple[RunConfig, tuple[Graph, Protocol] | None] | None = field(default=None, repr=False)

    def predict(
        self,
        client: int | str | None = None,
        data: str | os.PathLike[str] | Graph | Data | None = None,
        seed: int | None = None,
        pairs: PairsLike | None = None,
    ) -> Predictions:
        """Predict with the clients' models; `.to_frame()` has a row a node, or a pair; `.write(path)` writes them.

        Args:
            client: whose model: a number or a name, "all", or, for `data`, "mean": the mean of all clients' probabilities.
                None: every client's, for its own nodes; it must be said for `data` where there are several clients.
            data: an npz file, a folder of tables, a csv file of nodes without edges, a `Graph`, or PyTorch Geometric's `Data`.
                None: the clients' own nodes, with the part of the split and the true class of each.
            seed: which of the run's seeds; None: the first.
            pairs: of a run that learned links, a csv file with the columns source and target, or pairs of ids. None: the
                clients' own validation and test edges, and as many pairs that are not joined.
        """
        from fedquilt.runs.predict import predict_run

        return predict_run(self, client, data, seed, pairs=pairs)

    def admit(
        self,
        graph: str | os.PathLike[str] | Graph | Data,
        split: str | None = None,
        seed: int | None = None,
        epochs: int | None = None,
    ) -> Admitted:
        """Give a model to the owner of a graph that took no part in training; the run itself does not change.

        Args:
            graph: a name, a path, a `Graph`, or PyTorch Geometric's `Data`, with the run's features and classes.
            split: such as "40/30/30", "5fold" or "given"; None: the graph's own where it has one, else the run's.
            seed: which of the run's seeds admits it, and draws the split; None: the first.
            epochs: that it trains what it is given; None: as the run says.
        """
        check_admits(find_method(self.result["method"]))
        if not self.servers:
            raise FedquiltError(
                "The run kept no server that could admit anyone: an earlier version trained it, or its newcomers need the "
                "models of all clients, which were too many or are protected; train it again, with hold_out_clients."
            )
        chosen = next(iter(self.servers)) if seed is None else seed
        if chosen not in self.servers:
            seeds = ", ".join(map(str, self.servers))
            raise FedquiltError(f"The run has no server of seed {chosen}; choose one of: {seeds}.")
        return self.servers[chosen].admit_graph(load_graph(graph)[0], split, chosen, epochs)

    def client_names(self, seed: int | None = None) -> list[str]:
        """What to call the clients that trained, in the order of their numbers: by name where they have one, else "client 3".

        The order is that of `seed`, by default the first: where clients are held out, others train in another seed.
        """
        seeds = self.result["seeds"]
        entry = next((one for one in seeds if one["seed"] == seed), seeds[0])
        trained = entry.get("groups", {}).get("trained", {}).get("clients", self.result["clients"])
        return client_titles(entry, trained)

    @property
    def stopped(self) -> str | None:
        """Why a callback stopped the run before its end; None where none did."""
        return str(self.result["stopped"]["reason"]) if "stopped" in self.result else None

    @property
    def history(self) -> pandas.DataFrame:
        """A row for each seed and round: val, test, losses, bytes, seconds, and the method's diagnostics."""
        return frame(history_rows(self.records))

    @property
    def clients(self) -> pandas.DataFrame:
        """A row for each seed and client: its val and test metric in the seed's best round."""
        return frame(client_rows(self.result, self.records))

    def plot(self) -> Figure:
        """A matplotlib figure: the metric over the rounds, and each client's test metric at the best round."""
        return run_figure(self.result, self.records)

    def _repr_html_(self) -> str:
        names = ("seed", "best_round", "val", "test", "seconds")
        return html_table(
            [{name: seed[name] for name in names} for seed in self.result["seeds"]], repr(self).strip("<>")
        )

    def __repr__(self) -> str:
        r = self.result
        test = f"no test {r['metric']}"
        if r["test_mean"] is not None:  # it is where the metric is undefined on the test nodes
            spread = f" ± {r['test_std']:.2f}" if len(r["seeds"]) > 1 else ""
            test = f"test {r['metric']} {r['test_mean']:.2f}{spread}"
        stopped = f", stopped: {self.stopped}" if self.stopped else ""
        return f"<Run {r['method']} on {r['dataset']}, {r['clients']} clients: {test}{stopped}>"


def load_run(path: Path, device: str = "auto") -> Run:
    """Read a finished run from its folder. Nothing is trained and no graph is read; `device` is where it admits clients."""
    folder = RunFolder.open(path)
    folder.check_config()
    load_plugins(known_plugins(folder.config.get("plugins")), named=False)  # another's are not executed
    result = folder.result
    if result is None:
        folder.check_not_of_sites()
        stopped = folder.stopped
        why = f"was stopped by a callback ({stopped.get('reason')})" if stopped else "is not done"
        raise FedquiltError(f"The run in {path} {why}; go on with it: 'fedquilt resume {path}'.")
    run = Run(result, folder=folder.path)
    for seed in folder.config["seeds"]:
        read_seed(folder.seed(seed), seed, pick_device(device), run, models=not folder.of_sites)
    return run


def read_seed(folder: SeedFolder, seed: int, device: torch.device, run: Run, models: bool = True) -> None:
    """Read a finished seed from its folder into `run`; without `models` where the sites hold the models."""
    run.records[seed] = folder.records()
    if models:
        run.models[seed], run.facts[seed] = folder.load_models()
    arrays = folder.load_arrays("similarity") or {}
    run.similarities[seed] = {int(name): array for name, array in arrays.items()}
    run.findings[seed] = folder.load_arrays("findings") or {}
    server = folder.load_server()
    # A method of a plug-in that is not loaded is not known: then the run is read, and admits nobody.
    if server is not None and server[1]["method"] in methods():
        run.servers[seed] = FrozenServer.restored(*server, device)
