"""fedquilt from Python: `run`, `compare`, `resume`, which the command line calls too, and `load_run`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedquilt import __version__
from fedquilt.admission import Admitted, FrozenServer, check_admits
from fedquilt.allocator import keep_freed_memory
from fedquilt.attacks import Attack, check_attackable
from fedquilt.cohort import Client, clients_of
from fedquilt.engines.in_process import InProcess
from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs import (
    Graph,
    Protocol,
    format_split,
    load_graph,
    natural_clients,
    parse_split,
    prepare,
)
from fedquilt.graphs.catalogue import in_catalogue
from fedquilt.graphs.noise import with_edge_noise
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.split import GIVEN as GIVEN_SPLIT
from fedquilt.graphs.split import Given
from fedquilt.methods.contract import Method, State, Task, find_method
from fedquilt.methods.settings import as_dict, build_settings
from fedquilt.nn.objective import METRICS
from fedquilt.partition import Partition, check_fits, enough, make_partition, training_nodes_check
from fedquilt.partition import load as load_partition
from fedquilt.randomness import numpy_stream
from fedquilt.runs import RunFolder, SeedFolder, build_result
from fedquilt.runs.config import RunConfig
from fedquilt.runs.result import group
from fedquilt.training import Plan, Record, Training, none_if_nan, some_clients

if TYPE_CHECKING:
    from torch_geometric.data import Data

GIVEN = "@given"  # the dataset of a run whose graph was given as an object; the run folder keeps it in GRAPH_FILE
GRAPH_FILE = "graph.npz"
REDRAWS = 200
# Called with (config, seed, rounds) when a seed starts; gives what to call with each round's record.
Watcher = Callable[[RunConfig, int, int], Callable[[Record], None]]


@dataclass(eq=False)
class Run:
    """A finished run.

    Attributes:
        result: what result.json holds: means over seeds and a line a seed, metrics in percent.
        records: by seed, a record a round.
        models: by seed, the personal models of the best validation round; leading axis the client.
        similarities: by seed, the [M, M] similarity between clients by round (-1: the best round), if the method has one;
            [K, M, M] where it has one for each latent factor.
        findings: by seed, what the method found worth looking at after the last round, by name; see `Method.findings`.
        servers: by seed, the server after the last round, where the method admits clients after training.
        folder: where it was written, if anywhere.
    """

    result: dict[str, Any]
    records: dict[int, list[Record]] = field(default_factory=dict)
    models: dict[int, State] = field(default_factory=dict)
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


def run(
    method: str = "fedpub",
    dataset: str | os.PathLike[str] | Graph | Data = "patchwork",
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watcher | None = None,
    **options: Any,
) -> Run:
    """Train one method on one cut of one graph, for some seeds.

    Args:
        method: its name; see `fedquilt methods`.
        dataset: a name, a path, a `Graph`, or PyTorch Geometric's `Data`.
        out: folder to write to (must be new); None keeps everything in memory.
        watch: called when a seed starts; see `Watcher`.
        **options: any other field of `RunConfig`: clients, partition, seeds, rounds, settings, ...
    """
    given = None if isinstance(dataset, str | os.PathLike) else load_graph(dataset)
    name = os.fspath(dataset) if isinstance(dataset, str | os.PathLike) else GIVEN
    config = RunConfig.build({**options, "method": method, "dataset": name})
    folder = None if out is None else Path(out)
    return execute(config, folder, given, watch)


def compare(
    methods: Sequence[str],
    dataset: str | os.PathLike[str] | Graph | Data = "patchwork",
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watcher | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Run]:
    """Train several methods on the same cuts and splits. `settings` go to every method that has them; see `run`.

    A setting that none of the methods knows is an error.
    """
    given = None if isinstance(dataset, str | os.PathLike) else load_graph(dataset)
    name = os.fspath(dataset) if isinstance(dataset, str | os.PathLike) else GIVEN
    configs = plan(methods, {**options, "dataset": name, "settings": dict(settings or {})})
    check_plan(configs, given)
    return [execute(c, None if out is None else Path(out) / c.method, given, watch) for c in configs]


def plan(methods: Sequence[str], values: Mapping[str, Any]) -> list[RunConfig]:
    """A configuration for each method; a setting goes to the methods that have it, and one of them must."""
    if not methods:
        raise FedquiltError("Say which methods to compare, such as local, fedavg and fedpub.")
    for name in methods:
        if list(methods).count(name) > 1:
            raise FedquiltError(f"Method '{name}' is listed twice; list each method once.")
    known = {name: {f.name for f in fields(find_method(name).Settings)} for name in methods}
    # First as a whole, so that settings which are not names and values at all are refused with a sentence.
    settings = RunConfig.build({**values, "method": methods[0]}).settings
    everything = set().union(*known.values())
    for setting in settings:
        if not everything:
            raise FedquiltError(f"None of these methods has settings, so leave out '{setting}'.")
        if setting not in everything:
            raise unknown("setting of these methods", setting, everything)
    return [
        RunConfig.build({**values, "method": name, "settings": {k: v for k, v in settings.items() if k in known[name]}})
        for name in methods
    ]


def check_plan(configs: Sequence[RunConfig], given: tuple[Graph, Protocol] | None = None) -> Experiment:
    """Find what is wrong with any of a comparison's runs before the first trains; the first one, resolved.

    They differ in the method only, so one cut is enough to check.
    """
    first = Experiment(configs[0], given)
    task = first.task(configs[0].seeds[0])
    for config in configs[1:]:
        method = find_method(config.method)
        check_can(method, config)
        method(build_settings(method, task, config.settings), task)
    return first


def check_can(method: type[Method], config: RunConfig) -> None:
    """Refuse a method that lacks what the run asks of it."""
    if config.attack is not None:
        check_attackable(method)
    if config.hold_out_clients:
        check_admits(method)


def load_run(path: str | os.PathLike[str], device: str = "auto") -> Run:
    """A finished run from its folder; nothing is trained and no graph is needed. `device` is where it admits clients."""
    folder = RunFolder.open(Path(path))
    result = folder.result
    if result is None:
        raise FedquiltError(f"The run in {path} is not done; go on with it: 'fedquilt resume {path}'.")
    out = Run(result, folder=folder.path)
    for seed in folder.config["seeds"]:
        _read_seed(folder.seed(seed), seed, pick_device(device), out)
    return out


def resume(path: str | os.PathLike[str], watch: Watcher | None = None) -> Run:
    """Go on with a run that was killed; a run that is done is returned as it is."""
    folder = RunFolder.open(Path(path))
    config = RunConfig.build({k: v for k, v in folder.config.items() if k in RunConfig.model_fields})
    given = load_graph(folder.path / GRAPH_FILE) if config.dataset == GIVEN else None
    with folder.lock():
        return _run_seeds(Experiment(config, given), folder, watch)


def execute(
    config: RunConfig,
    out: Path | None,
    given: tuple[Graph, Protocol] | None = None,
    watch: Watcher | None = None,
    unnamed: bool = False,
    on_folder: Callable[[Path], None] | None = None,
) -> Run:
    """Carry a run out: in `out`, in a folder of its own under runs/ (`unnamed`), or in memory only.

    `on_folder` is told the folder as soon as it can be resumed.
    """
    experiment = Experiment(config, given)  # everything that can be wrong is found before a folder is made
    if out is None and not unnamed:
        return _run_seeds(experiment, None, watch)
    folder = RunFolder.create(out, experiment.config.name)
    if config.dataset == GIVEN and given is not None:
        write_npz(given[0], folder.path / GRAPH_FILE)
    folder.config = experiment.config.model_dump() | {
        "resolved": experiment.facts(),
        "versions": {"fedquilt": __version__, "torch": torch.__version__, "numpy": np.__version__},
    }
    if on_folder is not None:
        on_folder(folder.path)
    with folder.lock():
        return _run_seeds(experiment, folder, watch)


class Experiment:
    """A run resolved: its graph loaded and prepared, what was left open taken from the dataset's protocol."""

    def __init__(self, config: RunConfig, given: tuple[Graph, Protocol] | None = None) -> None:
        self._partitions: dict[int, Partition] = {}
        self.method = find_method(config.method)
        check_can(self.method, config)
        graph, protocol = given or load_graph(config.dataset, Path(config.data) if config.data else None)
        self.graph = prepare(graph, protocol)
        self.normalise_features = protocol.normalise_features
        own = not in_catalogue(config.dataset)
        # A split that came with a user's own graph is meant to be used; the papers draw theirs anew for every seed.
        split = config.split or (GIVEN_SPLIT if own and self.graph.masks is not None else format_split(protocol.split))
        filled: dict[str, Any] = {
            "rounds": config.rounds or protocol.rounds,
            "epochs": config.epochs or protocol.epochs,
            "metric": config.metric or protocol.metric,
            "split": split,
        }
        self.split = parse_split(split)
        self.saved = load_partition(Path(config.partition)) if config.partition.endswith(".npz") else None
        if self.saved is not None:
            check_fits(self.saved, self.graph)
            filled |= {"clients": self.saved.clients, "partition": str(Path(config.partition).resolve())}
        # Paths are kept in full, so that the run can be resumed from another folder.
        if own and config.dataset != GIVEN:
            filled["dataset"] = str(Path(config.dataset).expanduser().resolve())
        if config.data is not None:
            filled["data"] = str(Path(config.data).expanduser().resolve())
        if filled["metric"] not in METRICS:
            raise FedquiltError(f"There is no metric '{filled['metric']}'; choose one of: {', '.join(METRICS)}.")
        if filled["metric"] == "auc" and self.graph.classes != 2:
            raise FedquiltError(f"auc needs two classes and {self.graph.name} has {self.graph.classes}; use accuracy.")
        if config.partition in ("natural", "louvain-50"):  # the number of clients follows from the graph
            filled["clients"] = self._partition(config, config.seeds[0]).clients
        self.config = config.model_copy(update=filled)
        self.device = pick_device(config.device)
        # A wrong setting or an impossible cut should stop the run before the first seed, not after it.
        self.settings = build_settings(self.method, self.task(config.seeds[0]), config.settings)
        self.method(self.settings, self.task(config.seeds[0]))
        self.clients(config.seeds[0])
        self.attack(config.seeds[0])

    @property
    def label(self) -> str:
        """What to call the graph in results."""
        name = self.config.dataset
        return name if in_catalogue(name) else self.graph.name

    def facts(self) -> dict[str, Any]:
        """What was resolved, for the record."""
        g = self.graph
        return {
            "settings": as_dict(self.settings),
            "graph": {
                "name": self.label,
                "nodes": g.nodes,
                "edges": g.edges.shape[1],
                "features": g.features,
                "classes": g.classes,
            },
            "device": str(self.device),
        }

    def _partition(self, config: RunConfig, seed: int) -> Partition:
        if seed not in self._partitions:
            self._partitions[seed] = self._make_partition(config, seed)
        return self._partitions[seed]

    def _make_partition(self, config: RunConfig, seed: int) -> Partition:
        if self.saved is not None:
            return self.saved
        if config.partition == "natural":
            labels = natural_clients(config.dataset, 0)
            if labels is None:
                raise FedquiltError(
                    f"{config.dataset} has no natural clients; choose another partition, such as disjoint."
                )
            return make_partition(self.graph, "natural", None, seed, labels=labels)
        return make_partition(self.graph, config.partition, config.clients, seed, sizes=config.sizes)

    def cut(self, seed: int) -> tuple[Partition, np.ndarray]:
        """The partition and the split of a seed; with `min_train` the split is drawn again until it fits."""
        partition = self._partition(self.config, seed)
        # The built-in graphs' own clients are small; a split that leaves one without a label is simply drawn again.
        wanted = self.config.min_train or (1 if self.config.partition == "natural" else None)
        for attempt in range(1 if wanted is None or isinstance(self.split, Given) else REDRAWS):
            split = self.split.draw(self.graph, seed, attempt)
            if wanted and enough(partition, split, wanted):
                break
        training_nodes_check(partition, split, self.config.min_train or 1)
        return partition, split

    def clients(self, seed: int) -> list[Client]:
        """The clients of a seed, with noise on their edges where the run asks for it: those that train come first.

        Clients that are held out come after them, as numbers M' .. M-1 where M' train.
        """
        chance = self.config.edge_noise
        cut = [
            replace(c, graph=with_edge_noise(c.graph, chance, numpy_stream(seed, "client", c.id, "edge noise")))
            for c in clients_of(self.graph, *self.cut(seed))
        ]
        return [replace(cut[number], id=place) for place, number in enumerate(self.order(seed, len(cut)))]

    def order(self, seed: int, clients: int) -> list[int]:
        """The clients' numbers in the cut: [M], those that train first, then those that are held out."""
        held = self._held_out(seed, clients)
        return [m for m in range(clients) if m not in held] + sorted(held)

    def _held_out(self, seed: int, clients: int) -> set[int]:
        share = self.config.hold_out_clients
        return set(some_clients(seed, clients, share, "hold out").tolist()) if share else set()

    def task(self, seed: int) -> Task:
        """What the method may know of this run; it counts the clients that train."""
        c = self.config
        assert c.epochs is not None
        assert c.metric is not None
        kind = self.saved.kind if self.saved is not None else c.partition
        # Louvain finds as many communities as it finds, another number in each seed.
        given = None if c.partition == "louvain-50" else c.clients
        clients = given or self._partition(c, seed).clients
        clients -= len(self._held_out(seed, clients))
        return Task(c.dataset, kind, c.metric, self.graph.features, self.graph.classes, clients, c.epochs, seed)

    def training(
        self, seed: int, folder: SeedFolder | None = None, on_round: Callable[[Record], None] | None = None
    ) -> Training:
        """One seed's training, ready to run."""
        c = self.config
        assert c.rounds is not None
        method: Method = self.method(self.settings, self.task(seed))
        engine = InProcess(method, self.clients(seed)[: method.task.clients], self.device, c.cohort_size)
        plan = Plan(c.rounds, c.participation, c.evaluate_every, c.patience, c.checkpoint_seconds)
        return Training(method, engine, plan, folder, on_round, self.attack(seed))

    def attack(self, seed: int) -> Attack | None:
        """The attack on a seed's training, where the run asks for one."""
        c = self.config
        if c.attack is None:
            return None
        malicious = some_clients(seed, self.task(seed).clients, c.attack_ratio, "attack", "clients")
        return Attack(c.attack, c.attack_scale, frozenset(malicious.tolist()), seed)

    def server(self, training: Training) -> FrozenServer:
        """What is left of the server when a training is over."""
        assert self.config.split is not None
        lasting = training.method.lasting(training.server)
        return FrozenServer(
            method=training.method,
            lasting={name: tensor.detach().cpu().clone() for name, tensor in lasting.items()},
            device=self.device,
            split=self.config.split,
            normalise_features=self.normalise_features,
            class_names=self.graph.class_names,
        )


def _run_seeds(experiment: Experiment, folder: RunFolder | None, watch: Watcher | None) -> Run:
    keep_freed_memory()
    config = experiment.config
    assert config.rounds is not None
    out = Run(result={}, folder=None if folder is None else folder.path)
    summaries = []
    for seed in config.seeds:
        place = None if folder is None else folder.seed(seed)
        if place is None or not place.done:
            on_round = watch(config, seed, 1 if experiment.method.single_round else config.rounds) if watch else None
            summary = _train_seed(experiment, seed, place, on_round, out)
        else:
            summary = place.summary or {}
            _read_seed(place, seed, experiment.device, out)
        summaries.append(summary)
    out.result = build_result(config.model_dump() | {"dataset": experiment.label}, summaries)
    if folder is not None and folder.result != out.result:
        folder.result = out.result
    return out


def _read_seed(place: SeedFolder, seed: int, device: torch.device, out: Run) -> None:
    """What a finished seed left in its folder."""
    out.records[seed] = place.records()
    out.models[seed] = place.load_models()[0]
    arrays = place.load_arrays("similarity") or {}
    out.similarities[seed] = {int(name): array for name, array in arrays.items()}
    out.findings[seed] = place.load_arrays("findings") or {}
    server = place.load_server()
    if server is not None:
        out.servers[seed] = FrozenServer.restored(*server, device)


def _train_seed(
    experiment: Experiment,
    seed: int,
    place: SeedFolder | None,
    on_round: Callable[[Record], None] | None,
    out: Run,
) -> dict[str, Any]:
    training = experiment.training(seed, place, on_round)
    progress = training.run()
    best = progress.best
    summary = {
        "seed": seed,
        "best_round": best.round,
        "val": best.val,
        "test": none_if_nan(best.test),
        "seconds": progress.seconds,
        "seconds_per_round": progress.seconds / max(1, progress.next_round),
        "upload_bytes": progress.upload_bytes,
        "download_bytes": progress.download_bytes,
        "metric": experiment.config.metric,
        "rounds_run": progress.next_round,
        "clients_test": best.clients_test,
        "clients_left_out": sum(value is None for value in best.clients_test),
    }
    out.records[seed] = training.records
    out.models[seed] = best.models
    out.similarities[seed] = {round: s.numpy() for round, s in training.similarities.items()}
    out.findings[seed] = {name: found.numpy() for name, found in training.findings.items()}
    if experiment.method.admits:
        out.servers[seed] = experiment.server(training)
    summary |= _apart(experiment, training, out.servers.get(seed))
    if place is not None:
        facts = {
            "method": experiment.method.name,
            "settings": as_dict(experiment.settings),
            "round": best.round,
        }
        place.save_models({name: tensor.cpu() for name, tensor in best.models.items()}, facts)
        if out.similarities[seed]:
            place.save_arrays("similarity", {str(round): array for round, array in out.similarities[seed].items()})
        if out.findings[seed]:
            place.save_arrays("findings", out.findings[seed])
        if seed in out.servers:
            place.save_server(out.servers[seed].lasting, out.servers[seed].facts())
        place.save_arrays("split-and-partition", _who_had_what(experiment, seed))
        place.finish(summary)
    return summary


def _apart(experiment: Experiment, training: Training, server: FrozenServer | None) -> dict[str, Any]:
    """What a summary says of groups of clients: honest and malicious ones, those that trained and new ones."""
    config, task, tests = experiment.config, training.method.task, training.progress.best.clients_test
    groups: dict[str, Any] = {}
    said: dict[str, Any] = {"groups": groups}
    if training.attack is not None:
        for name, lies in (("honest", False), ("malicious", True)):
            groups[name] = group([t for m, t in enumerate(tests) if (m in training.attack.malicious) == lies])
    if config.hold_out_clients and server is not None:
        admission = server.admit(experiment.clients(task.seed)[task.clients :], config.cohort_size)
        groups |= {"trained": group(tests), "new": group(admission.test)}
        said["admission"] = {
            "clients_val": admission.val,
            "clients_test": admission.test,
            "bytes_up": admission.bytes_up,
            "bytes_down": admission.bytes_down,
        }
    return said if groups else {}


def _who_had_what(experiment: Experiment, seed: int) -> dict[str, np.ndarray]:
    """The nodes of the clients that trained, one after the other, how many each had, and the split.

    Where clients were held out, theirs as well, and all clients' numbers in the cut.
    """
    partition, split = experiment.cut(seed)
    order = experiment.order(seed, partition.clients)
    trained = experiment.task(seed).clients
    held = [partition.nodes[m] for m in order]
    sizes = partition.sizes[order]
    arrays = {"nodes": np.concatenate(held[:trained]), "sizes": sizes[:trained], "split": split}
    if trained < len(order):
        arrays |= {
            "new_nodes": np.concatenate(held[trained:]),
            "new_sizes": sizes[trained:],
            "numbers": np.array(order),
        }
    return arrays


def pick_device(name: str) -> torch.device:
    """`auto` is a CUDA device where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise FedquiltError(f"There is no device '{name}'; use auto, cpu or cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise FedquiltError("This machine has no CUDA device that PyTorch can use; use --device cpu or auto.")
    return device
