"""Resolve a run: load its graph, fill in the options that were left open, and make each seed's clients and training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.cohort.client import Client, prepared_clients
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.pool import pooled_clients
from fedquilt.common.random_streams import numpy_stream
from fedquilt.common.registry import load_plugins
from fedquilt.datasets.catalogue import choose, in_catalogue, known_copies
from fedquilt.datasets.load import load_graph
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError, UnfitMethodError
from fedquilt.graphs.client_split import OWN, OwnSplits, client_splits
from fedquilt.graphs.copies import with_copies
from fedquilt.graphs.federated import FederatedGraph, with_client_copies
from fedquilt.graphs.graph import Features, Graph
from fedquilt.graphs.mapped_features import some_rows
from fedquilt.graphs.preparation import Preparation, PrepareKind, notice, suggested_kind
from fedquilt.graphs.prepare import prepare
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.split import GIVEN as GIVEN_SPLIT
from fedquilt.graphs.split import Given, format_split, parse_split
from fedquilt.methods.base import Method, RunContext, find_method
from fedquilt.methods.settings import as_dict, check_client_settings, resolve_settings
from fedquilt.partition.partition import Partition
from fedquilt.partition.source import find_source
from fedquilt.partition.training_nodes import check_training_nodes, worth_redrawing
from fedquilt.privacy.dp import DpConfig, Privatiser, Protection
from fedquilt.runs.class_weights import resolved_class_weights
from fedquilt.runs.client_settings import client_number
from fedquilt.runs.clients_from import client_paths, load_clients
from fedquilt.runs.compute_version import is_partial
from fedquilt.runs.config import GIVEN, NATURAL, KeepCopies, RunConfig
from fedquilt.runs.folder import SeedFolder
from fedquilt.runs.method_checks import check_needs, keeps_server
from fedquilt.runs.shared_statistics import Bytes, shared_preparation
from fedquilt.runs.task_split import with_task_split
from fedquilt.scenarios.attacks import Attack
from fedquilt.scenarios.edge_noise import with_edge_noise
from fedquilt.scenarios.feature_noise import with_feature_noise
from fedquilt.scenarios.label_noise import check_label_noise, with_label_noise
from fedquilt.scenarios.newcomers import FrozenServer
from fedquilt.scenarios.poisoned_labels import with_poisoned_labels
from fedquilt.scenarios.robust_aggregation import averaging_rule
from fedquilt.tasks.base import find_task
from fedquilt.tasks.class_weights import NONE as NO_WEIGHTS
from fedquilt.training.attendance import Attendance, Conditions
from fedquilt.training.client_sampling import some_clients
from fedquilt.training.edge_notice import announce_edge_weights
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.engines.registry import EngineOptions, make_engine
from fedquilt.training.loop import Training
from fedquilt.training.memory_notice import announce_memory
from fedquilt.training.plan import Plan
from fedquilt.training.round_store import Record
from fedquilt.training.standing_uploads import server_for_newcomers

REDRAWS = 200
_log = logging.getLogger(__name__)


def load_run_graph(config: RunConfig) -> tuple[Graph, Protocol]:
    """The graph that a run names, or those of its clients joined, and the protocol."""
    if config.clients_from is not None:
        return load_clients(config.clients_from, config.keep_copies)
    labelled = find_task(config.task).needs_labels
    return load_graph(config.dataset, Path(config.data) if config.data else None, labelled=labelled)


def prepared_graph(
    config: RunConfig, given: tuple[Graph, Protocol] | None = None
) -> tuple[Graph, Protocol, KeepCopies | None]:
    """The graph of a run as it is trained on, its protocol, and which copies are kept together."""
    graph, protocol = given or load_run_graph(config)
    keep = config.keep_copies or known_copies(config.dataset)
    graph = prepare(graph, protocol)
    if config.clients_from is not None:  # the clients' own were marked as they were read
        return graph, protocol, keep
    marked = with_client_copies(graph, keep) if isinstance(graph, FederatedGraph) else with_copies(graph, keep)
    return marked, protocol, keep


def _cut_by_owner(config: RunConfig, graph: Graph) -> RunConfig:
    """The configuration with the natural partition where a graph says whose its nodes are and the run asks for no other."""
    if not isinstance(graph, FederatedGraph) or "partition" in config.model_fields_set:
        return config
    return config.model_copy(update={"partition": NATURAL})


class ResolvedRun:
    """A run with its graph loaded, and with the options that were None taken from the dataset's protocol and the method.

    Its `config` has all of them, so that a run of that configuration is the same run.
    """

    def __init__(self, config: RunConfig, given: tuple[Graph, Protocol] | None = None) -> None:
        self._partitions: dict[int, Partition] = {}
        self._splits: dict[int, np.ndarray] = {}
        self.statistics_bytes: Bytes = {}  # of shared statistics of features, before the first round
        self._preparations: dict[int, list[Preparation]] = {}
        self._announced = False  # once is enough: seeds differ little
        self._cut_clients: dict[int, list[Client]] = {}  # of a seed that trains next
        plugins = load_plugins(config.plugins, named=False)  # in a worker process, the first time
        self.method = find_method(config.method)
        config = with_task_split(config)
        self.task = find_task(config.task, config.task_settings)
        self.graph, self.protocol, keep = prepared_graph(config, given)
        own = not in_catalogue(config.dataset)
        config = _cut_by_owner(config, self.graph)
        self.owners = self.graph if isinstance(self.graph, FederatedGraph) and config.partition == NATURAL else None
        # A split that came with a user's own graph is meant to be used; the papers draw theirs anew for every seed.
        usual = GIVEN_SPLIT if own and self.graph.masks is not None else format_split(self.protocol.split)
        split = config.split or (OWN if self.owners and not self.task.splits_edges else usual)
        filled: dict[str, Any] = {
            "rounds": config.rounds or self.protocol.rounds,
            "epochs": config.epochs or self.protocol.epochs,
            "metric": config.metric or self._usual_metric(config.class_weights),
            "split": split,
            "keep_copies": keep,
            # Features of a user's own graph come to one scale; the catalogue's protocols say what is done to theirs.
            "prepare": config.prepare or (self._suggested_kind() if own else "none"),
        }
        self._says_preparation = config.prepare is None and filled["prepare"] != "none"
        if config.class_weights != NO_WEIGHTS:
            filled["class_weights"] = resolved_class_weights(config.class_weights, self.graph)
        self.split = client_splits(split) if self.owners and not self.task.splits_edges else parse_split(split)
        self.source = find_source(config.partition, config.dataset)
        filled["partition"] = self.source.name
        # Paths are stored as absolute ones, so that the run can be resumed from another folder.
        if config.clients_from is not None:
            filled["clients_from"] = list(map(str, client_paths(config.clients_from)))
        elif own and config.dataset != GIVEN:
            filled["dataset"] = str(Path(config.dataset).expanduser().resolve())
        filled["plugins"] = plugins
        if config.data is not None:
            filled["data"] = str(Path(config.data).expanduser().resolve())
        self.task.metric(filled["metric"])
        if config.label_noise:
            check_label_noise(config.task, self.task.has_classes, self.task.outputs(self.graph))
        self.task.check(f"{self.graph.name} has", self.task.outputs(self.graph), filled["metric"])
        if self.source.finds_clients:
            filled["clients"] = self._partition(config, config.seeds[0]).clients
        if self.owners and config.clients not in (None, filled["clients"]) and "clients" in config.model_fields_set:
            raise FedquiltError(
                f"There are {filled['clients']} clients, not {config.clients}; leave out the number of clients, or say how to "
                "cut the graph with another partition."
            )
        self.config = config.model_copy(update=filled)
        self.device = pick_device(config.device)
        self.cohort_size = config.cohort_size  # smaller where memory ran out
        # A wrong setting or an impossible cut should stop the run before the first seed, not after it.
        method = self.method_of(config)
        self.settings = method.settings
        if getattr(method, "one_by_one", False):
            _log.info(
                "The backbone %s is a module of your own: clients are computed one after the other, which is slower than "
                "fedquilt's own networks.",
                getattr(self.settings, "model", ""),
            )
        self.config = self.config.model_copy(update={"epochs": method.context.epochs})
        by_client = self._own_settings(self.cut(config.seeds[0])[0].clients, method)
        self.settings = method.settings_with(by_client[number] for number in sorted(by_client))
        self.attack(config.seeds[0])
        self.config = self.config.model_copy(update=self._condition_rounds(method))
        self.attendance(method)
        self.protection(method)
        if config.workers is not None:
            from fedquilt.training.engines.ray_workers import check_workers

            check_workers(config.workers, method.context.clients)

    def _condition_rounds(self, method: Method) -> dict[str, int]:
        """The rounds in which clients join and leave, by default in the middle; refused where they are after the end."""
        c = self.config
        assert c.rounds is not None
        found: dict[str, int] = {}
        for share, name, given in (
            (c.join_late, "join_round", c.join_round),
            (c.leave, "leave_round", c.leave_round),
        ):
            if share and not method.single_round:
                found[name] = given or max(1, c.rounds // 2)
                total = method.total_rounds(c.rounds)
                if found[name] >= total:
                    raise FedquiltError(
                        f"{name}={found[name]} is after the end of a run of {total} rounds, which count from 0; choose an "
                        "earlier one, or more rounds."
                    )
        return found

    def conditions(self) -> Conditions:
        """Drop-outs, stragglers, and clients that join late or leave; none where a method learns nothing over rounds."""
        c = self.config
        if self.method.single_round:
            return Conditions()
        members = (c.join_late, c.join_round or 0, c.leave, c.leave_round or 0)
        return Conditions(c.drop_out, c.stragglers, *members, c.upload_delay, c.buffer or 0)

    def attendance(self, method: Method) -> Attendance:
        """Who takes part in which round of a training of `method`."""
        context = method.context
        return Attendance(
            context.seed, context.clients, self.config.participation, self.conditions(), method.local_steps
        )

    def _suggested_kind(self) -> PrepareKind:
        return self.owners.suggested_kind() if self.owners else suggested_kind(self.graph.x)

    def method_of(self, config: RunConfig) -> Method:
        """The method of `config` with its settings, for the first seed; refused where it lacks what the run asks of it.

        `config` may differ from this run's in the method and its settings, as the runs of a comparison do.
        """
        method = find_method(config.method)
        context = replace(self.context(config.seeds[0]), epochs=config.epochs or self.protocol.epochs)
        first = method(*resolve_settings(method, context, config.settings, config.epochs))
        try:
            check_needs(first, config)
        except FedquiltError as error:
            raise UnfitMethodError(str(error)) from error
        return first

    def _usual_metric(self, class_weights: str) -> str:
        """The dataset's metric where the task has it, else the task's first; balanced accuracy where classes are weighted.

        Accuracy would choose a round in which the rare classes are not found yet, and undo what the weights are for.
        """
        usual = self.protocol.metric if self.protocol.metric in self.task.metrics else next(iter(self.task.metrics))
        weighted = class_weights != NO_WEIGHTS and usual == "accuracy"
        return "balanced-accuracy" if weighted and "balanced-accuracy" in self.task.metrics else usual

    @property
    def label(self) -> str:
        """The graph's name in results."""
        name = self.config.dataset
        return name if in_catalogue(name) else self.graph.name

    def client_names(self, seed: int) -> list[str] | None:
        """The names of the clients, those that train first (see `clients`); None where they have numbers only."""
        names = self.owners.client_names if self.owners else None
        return [names[number] for number in self.order(seed, len(names))] if names else None

    def facts(self) -> dict[str, Any]:
        """What was resolved: settings, sizes of the graph, names of clients and device, as config.json stores it."""
        g = self.graph
        names = self.owners.client_names if self.owners else None
        return {
            **({"client_names": list(names)} if names else {}),
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
            clients = None if self.source.finds_clients else config.clients
            options = {"sizes": config.sizes, "alpha": config.alpha}
            self._partitions[seed] = self.source.partition(self.graph, clients, seed, **options)
        return self._partitions[seed]

    def cut(self, seed: int) -> tuple[Partition, np.ndarray]:
        """The partition and the split of a seed; with `min_train` the split is drawn again until it fits."""
        partition = self._partition(self.config, seed)
        if seed not in self._splits:
            self._splits[seed] = self._draw_split(partition, seed)
        return partition, self._splits[seed]

    def _draw_split(self, partition: Partition, seed: int) -> np.ndarray:
        wanted = self.config.min_train or self.source.min_train
        fixed = isinstance(self.split, Given | OwnSplits)
        for attempt in range(1 if wanted is None or fixed else REDRAWS):
            split = self.task.draw_split(self.split, self.graph, seed, attempt)
            if wanted and not worth_redrawing(partition, split, wanted):
                break
        names, redraw = self.owners.client_names if self.owners else None, wanted is None and not fixed
        check_training_nodes(partition, split, self.config.min_train or 1, redraw=redraw, names=names)
        return split

    def clients(self, seed: int) -> list[Client]:
        """The clients of a seed as they train: their features are prepared; see `raw_clients` for their order."""
        prepared = prepared_clients(self.raw_clients(seed), self.preparations(seed))
        if not self.method.pools_graphs:
            return prepared
        partition = self.cut(seed)[0]
        if self._has_own_graphs():
            return pooled_clients(prepared)
        return pooled_clients(prepared, [partition.nodes[m] for m in self.order(seed, partition.clients)], self.graph)

    def _has_own_graphs(self) -> bool:
        """Whether the clients are owners with graphs of their own, between which there are no edges."""
        return self.owners is not None and not np.diff(self.owners.owner[self.graph.edges], axis=0).any()

    def raw_clients(self, seed: int) -> list[Client]:
        """The clients of a seed, with noise on their data where the run asks for it: those that train come first.

        Clients that are held out come after them, as numbers M' .. M-1 where M' train.
        """
        cut = [self._with_noise(c, seed) for c in self.task.clients(self.graph, *self.cut(seed), seed)]
        for number, own in self._own_settings(len(cut), self._method(seed)).items():
            cut[number] = replace(cut[number], settings=own)
        clients = [replace(cut[number], id=place) for place, number in enumerate(self.order(seed, len(cut)))]
        attack = self.attack(seed) if self.config.attack == "labels" else None
        if attack is None:
            return clients
        return [with_poisoned_labels(client) if client.id in attack.malicious else client for client in clients]

    def _with_noise(self, client: Client, seed: int) -> Client:
        """A client with noise on its edges, features and training labels; the same whatever the method."""
        c = self.config

        def stream(noise: str) -> np.random.Generator:
            return numpy_stream(seed, "client", client.id, noise)

        graph = with_edge_noise(client.graph, c.edge_noise, stream("edge noise"))
        graph = with_feature_noise(graph, c.feature_noise, stream("feature noise"))
        return with_label_noise(replace(client, graph=graph), c.label_noise, c.label_noise_kind, stream("label noise"))

    def _own_settings(self, clients: int, method: Method) -> dict[int, dict[str, Any]]:
        """By the client's number in the cut, the settings that it has in place of the others'."""
        names = self.owners.client_names if self.owners else None
        return {
            client_number(client, clients, names): check_client_settings(method, given, f"client {client}")
            for client, given in self.config.client_settings.items()
        }

    def preparations(self, seed: int) -> list[Preparation]:
        """How each client of a seed prepares its features, in the order of `raw_clients`."""
        kind, partition = self.config.prepare or "none", self.cut(seed)[0]
        if kind != "standard":
            return [Preparation(kind)] * partition.clients
        if seed not in self._preparations:
            order = self.order(seed, partition.clients)
            if self.method.pools_graphs:  # who has everyone's features has everyone's statistics
                held = np.unique(np.concatenate(partition.nodes))
                self._preparations[seed] = [Preparation.of(self.graph.x[held], kind)] * len(order)
                return self._preparations[seed]
            features: Iterable[Features]  # one client's after the other, which may be large
            if self.config.feature_noise:  # clients have no others than the noisy ones
                features = (client.graph.x for client in self.raw_clients(seed))
            else:
                features = (some_rows(self.graph.x, partition.nodes[m]) for m in order)
            if self._shares_statistics():  # held-out clients tell nothing
                trained = list(islice(features, self.context(seed).clients))
                how, self.statistics_bytes = shared_preparation(trained)
                self._preparations[seed] = [how] * len(order)
            else:
                self._preparations[seed] = [Preparation.of(x, kind) for x in features]
        return self._preparations[seed]

    def _shares_statistics(self) -> bool:
        return self.config.prepare == "standard" and self.config.prepare_statistics == "shared"

    def order(self, seed: int, clients: int) -> list[int]:
        """The clients' numbers in the cut: [M], those that train first, then those that are held out."""
        held = self._held_out(seed, clients)
        return [m for m in range(clients) if m not in held] + sorted(held)

    def _held_out(self, seed: int, clients: int) -> set[int]:
        share = self.config.hold_out_clients
        return set(some_clients(seed, clients, share, "hold out").tolist()) if share else set()

    def context(self, seed: int) -> RunContext:
        """What the method may know of this run; it counts the clients that train."""
        c = self.config
        assert c.epochs is not None
        assert c.metric is not None
        # A number of clients that is found may differ from seed to seed.
        given = None if self.source.finds_clients else c.clients
        clients = given or self._partition(c, seed).clients
        clients -= len(self._held_out(seed, clients))
        # As the catalogue calls it, so that a method finds what it knows about it however the name was typed.
        name = choose(c.dataset).dataset.name if in_catalogue(c.dataset) else c.dataset
        outputs = self.task.outputs(self.graph)
        kind = self.source.kind
        sizes = (self.graph.features, outputs, clients, c.epochs)
        assert c.rounds is not None
        return RunContext(
            *(name, kind, c.metric, *sizes, seed),
            task=c.task,
            task_settings=c.task_settings,
            class_weights=c.class_weights,
            rounds=c.rounds,
            newcomer_epochs=c.newcomer_epochs,
            batch_nodes=0 if c.batch == "full" else c.batch_nodes,
            batch_sums=c.batch == "accumulated",
            fan_out=tuple(c.fan_out) if c.batch == "neighbours" else (),
        )

    def total_rounds(self, seed: int) -> int:
        """The rounds of one seed's training, over all phases of the method."""
        assert self.config.rounds is not None
        return self._method(seed).total_rounds(self.config.rounds)

    def training(
        self, seed: int, folder: SeedFolder | None = None, on_round: Callable[[Record], None] | None = None
    ) -> Training:
        """One seed's training, ready to run."""
        c = self.config
        assert c.rounds is not None
        method = self._method(seed)
        self.announce(seed)
        clients = self._cut_clients.pop(seed, None) or self.clients(seed)
        engine = make_engine(method, clients[: method.context.clients], self._engine_options())
        protection = self.protection(method)
        limit = None if protection is None else protection.rounds()
        pace = (c.rounds, c.participation, c.evaluate_every, c.patience, c.checkpoint_seconds)
        plan = Plan(*pace, limit=limit, conditions=self.conditions())
        transforms = [one for one in (protection, self.attack(seed)) if one is not None]
        # Where memory ran out there is none for the pool of a CUDA graph, which is as large as a round.
        capture = self.cohort_size == c.cohort_size
        return Training(method, engine, plan, folder, on_round, transforms, cuda_graphs=capture)

    def announce(self, seed: int) -> None:
        """Log, once, what a user should know before a seed trains; refused where it cannot fit into memory.

        It is whether edge weights are used, how features are prepared where the user did not say, and the memory it takes.
        """
        if self._announced:
            return
        self._announced = True
        c, method = self.config, self._method(seed)
        announce_edge_weights(method, self.graph)
        if method.pools_graphs:
            _log.info("%s", self._pooling_notice())
        if self._says_preparation:
            statistics = "shared" if method.pools_graphs else c.prepare_statistics
            _log.info("%s", notice(self.preparations(seed)[: method.context.clients], statistics))
        self._cut_clients[seed] = self.clients(seed)
        clients, changes = (
            self._cut_clients[seed][: method.context.clients],
            c.dp_clip is not None or c.attack is not None,
        )
        if c.batch != "full" and any(client.held_out for client in clients):
            raise FedquiltError(
                f"The task {c.task} hides parts of the clients' graphs, which training on parts of them cannot do; leave out "
                "batch."
            )
        partial = is_partial(c.model_dump())
        announce_memory(method, clients, self._engine_options(), c.participation, changes, partial)

    def _pooling_notice(self) -> str:
        """A sentence about what is pooled, and whether there are edges between clients."""
        if self._has_own_graphs():
            between = (
                "; clients brought graphs of their own, between which there are no edges, so the whole is their union."
            )
        else:
            between = ", with the edges that the cut went through."
        return f"{self.method.title}: everyone's graph is in one place{between}"

    def _method(self, seed: int) -> Method:
        return self.method(self.settings, self.context(seed), averaging_rule(*self._aggregation()))

    def _aggregation(self) -> tuple[Any, ...]:
        c = self.config
        return c.aggregation, c.aggregation_trim, c.aggregation_clip, c.aggregation_voters

    def _engine_options(self) -> EngineOptions:
        c = self.config
        return EngineOptions(self.device, self.cohort_size, c.precision, c.workers, c.threads)

    def largest_cohort(self, seed: int) -> int:
        """How many clients are computed at once where nothing limits it, here or in each worker process."""
        return -(-self.context(seed).clients // (self.config.workers or 1))

    def attack(self, seed: int) -> Attack | None:
        """The attack on a seed's training, where the run asks for one."""
        c = self.config
        if c.attack is None:
            return None
        context = self.context(seed)
        malicious = some_clients(seed, context.clients, c.attack_ratio, "attack", "clients")
        evidence_of = self.method(self.settings, context).evidence_of
        return Attack(c.attack, c.attack_scale, frozenset(malicious.tolist()), seed, evidence_of)

    def protection(self, method: Method) -> Protection | None:
        """The protection of uploads in a training of `method`, where the run asks for one and anything is uploaded.

        Rounds in which nothing is uploaded spend nothing. Refused where the budget does not allow a single round.
        """
        c, context = self.config, method.context
        if c.dp_clip is None:
            return None
        assert c.rounds is not None
        rounds = method.total_rounds(c.rounds)
        sent = np.zeros((rounds, context.clients), dtype=np.int64)
        attendance = self.attendance(method)
        for round in filter(method.sends_in, range(rounds)):  # also what is lost on its way has left the client
            sent[round, attendance.at(round).participants.numpy()] = 1
        most = sent.cumsum(0).max(1)
        config = DpConfig(clip=c.dp_clip, noise=c.dp_noise, epsilon=c.dp_epsilon, delta=c.dp_delta)
        protection = Protection(
            Privatiser(config, int(most[-1]), context.seed), tuple(most.tolist()), method.public_start()
        )
        affordable = protection.rounds()
        if not (last := method.phase(affordable - 1)[0]).evaluated:
            raise FedquiltError(
                f"The budget of epsilon {c.dp_epsilon:g} ends in round {affordable} of {rounds}, in {method.title}'s phase "
                f"'{last.name}', whose models are not the result; use fewer rounds, more noise or a larger dp_epsilon."
            )
        protection.spent(0)  # an error now where the accountant is not installed
        return protection

    def server(self, training: Training) -> FrozenServer | None:
        """The server after a training, which admits newcomers; None where it keeps none (`keeps_server`)."""
        assert self.config.split is not None
        method, size = training.method, self.cohort_size or training.method.context.clients
        if not keeps_server(method, self.config):
            return None
        # A newcomer without a split of its own draws one as any client without one.
        split = format_split(self.protocol.split) if self.config.split == OWN else self.config.split
        if isinstance(training.engine, InProcess):
            cohorts: Iterable[Cohort] = training.engine.cohorts  # they are on the device already
        else:
            clients = self.clients(method.context.seed)[: method.context.clients]
            cohorts = (Cohort(clients[m : m + size], self.device) for m in range(0, len(clients), size))
        lasting = method.newcomer_state(server_for_newcomers(training, cohorts, self.config.precision))
        return FrozenServer(
            method=method,
            lasting={name: tensor.detach().cpu().clone() for name, tensor in lasting.items()},
            device=self.device,
            split=split,
            normalise_features=self.protocol.normalise_features,
            class_names=self.graph.class_names,
            keep_copies=self.config.keep_copies,
            prepare=self.config.prepare or "none",
            preparation=self.preparations(method.context.seed)[0] if self._shares_statistics() else None,
            aggregation=self._aggregation(),
        )
