"""Small federations for the tests of methods, engines and the round loop: ragged clients with learnable labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.nn import GCNConv

from fedquilt.cohort.client import Client
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL
from fedquilt.messages.message import dense
from fedquilt.methods import base
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import Method, RunContext, State, find_method, register
from fedquilt.methods.settings import build_settings
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from fedquilt.training.round_store import Record
from support.clients import dense_features, edge_index

SIZES = (25, 14, 31, 9, 18)
FEATURES, CLASSES = 10, 3
# Wherever a method has a setting of this name: small enough for tests, large enough for each of its parts to act.
SMALL = {
    "hidden": 8,
    "generator_rounds": 4,
    "generator_epochs": 2,
    "impairments": 2,
    "head_epochs": 2,
    "pseudo_nodes": 24,
}


def ragged_clients(
    sizes: Sequence[int] = SIZES, sparse: bool = False, classes: int = CLASSES, seed: int = 0
) -> list[Client]:
    """Clients whose labels follow from their features; each has nodes to train, validate and test, and one in no part.

    Sparse features have one non-zero in ten, dense ones are all filled.
    """
    rng = np.random.default_rng(seed)
    return [ragged_client(rng, m, n, sparse, classes) for m, n in enumerate(sizes)]


def ragged_client(rng: np.random.Generator, number: int, nodes: int, sparse: bool, classes: int) -> Client:
    y = rng.integers(0, classes, nodes)
    y[:classes] = np.arange(classes)
    u, v = np.triu_indices(nodes, k=1)
    chosen = rng.random(len(u)) < np.where(y[u] == y[v], 0.3, 0.08)
    # Each client's classes look a little different, so that clients resemble each other more or less.
    centre = rng.standard_normal((classes, FEATURES)) + 1.5 * np.eye(classes, FEATURES)
    x = (centre[y] + rng.standard_normal((nodes, FEATURES))).astype(np.float32)
    if sparse:
        kept = rng.random(x.shape) < 0.1
        kept[np.arange(FEATURES) % nodes, np.arange(FEATURES)] = True  # every client uses every feature once
        x = sp.csr_matrix(x * kept)
    split = np.array([TRAIN, VAL, TEST] * (nodes // 3 + 1), dtype=np.int8)[rng.permutation(nodes)]
    for part in (TRAIN, VAL, TEST):
        assert (split == part).any()
    split[np.flatnonzero(split == VAL)[-1]] = NONE
    y[np.flatnonzero(split == NONE)[0]] = -1
    graph = Graph(f"ragged/{number}", np.stack([u[chosen], v[chosen]]).astype(np.int64), x, y.astype(np.int64), classes)
    return Client(number, graph, split)


# Quilt as it was first: one view, whose weights are averaged by evidence.
FIRST_QUILT: dict[str, Any] = {
    **{"model": "filter", "order": 4, "groups": 5, "basis": "scaled"},
    **{"average": "weights", "feature_dropout": 0.0, "feature_length": 0.0, "lr": 0.01, "weight_decay": 0.0},
    **{"masks": True, "reach": 200.0},
}


def averaging_settings(name: str) -> dict[str, Any]:
    """Settings with which the server of this method averages weights."""
    return FIRST_QUILT if name == "quilt" else {}


def relabelled(clients: Sequence[Client], method: str) -> list[Client]:
    """Other labels for all labelled nodes that the method must not read: of test, and of validation unless it says so."""
    changed, read = [], (TRAIN, VAL) if find_method(method).uses_validation else (TRAIN,)
    for client in clients:
        y = client.graph.y.copy()
        hidden = ~np.isin(client.split, read) & (y >= 0)
        y[hidden] = (y[hidden] + 1) % client.graph.classes
        assert not np.array_equal(y, client.graph.y)
        changed.append(Client(client.id, replace(client.graph, y=y), client.split))
    return changed


def make_task(clients: Sequence[Client], **changes: Any) -> RunContext:
    graph = clients[0].graph
    facts = {
        "dataset": "ragged",
        "partition": "disjoint",
        "metric": "accuracy",
        "features": graph.features,
        "outputs": graph.classes,
        "clients": len(clients),
        "epochs": 1,
        "seed": 3,
        "rounds": 3,
    }
    return RunContext(**(facts | changes))


def small_settings(name: str) -> dict[str, Any]:
    """The settings with which a method by this name is small."""
    own = {field.name for field in fields(find_method(name).Settings)}
    return {setting: value for setting, value in SMALL.items() if setting in own}


def make_method(
    name: str,
    clients: Sequence[Client],
    context: RunContext | None = None,
    averaging: Averaging = WEIGHTED_MEAN,
    **settings: Any,
) -> Method:
    """A method by name, small unless told otherwise."""
    cls, context = find_method(name), context or make_task(clients)
    return cls(build_settings(cls, context, small_settings(name) | settings), context, averaging)


@contextmanager
def registered(cls: type[Method], name: str) -> Iterator[type[Method]]:
    """A method that is known inside the block only."""
    register(name)(cls)
    try:
        yield cls
    finally:
        base.METHODS.remove(name)


def make_training(
    method: Method, clients: Sequence[Client], plan: Plan, cohort_size: int | None = None, **options: Any
) -> Training:
    return Training(method, InProcess(method, clients, cohort_size=cohort_size), plan, **options)


def pyg_loop(
    clients: Sequence[Client],
    start: State,
    rounds: int,
    epochs: int,
    lr: float,
    average: Callable[[str], bool] = lambda name: True,
    mu: float = 0.0,
    weight_decay: float = 0.0,
) -> tuple[list[State], State]:
    """Federated averaging as anyone would write it: a PyTorch Geometric model and torch.optim.Adam a client, no dropout.

    Gives each client's weights after the last local training, and their average weighted by training nodes.
    """
    nets = [PlainGcn(client, {name: w[m] for name, w in start.items()}) for m, client in enumerate(clients)]
    optimisers = [torch.optim.Adam(net.parameters(), lr=lr, weight_decay=weight_decay) for net in nets]
    received: State = {}
    mean: State = {}
    for _ in range(rounds):
        for net, optimiser in zip(nets, optimisers, strict=True):
            net.load(received)
            for _ in range(epochs):
                optimiser.zero_grad()
                loss = torch.nn.functional.cross_entropy(net()[net.train_nodes], net.y[net.train_nodes])
                for name, value in received.items():
                    loss = loss + mu / 2 * (net.weight(name) - value).square().sum()
                loss.backward()
                optimiser.step()
        counts = [float(net.train_nodes.sum()) for net in nets]
        own = [net.weights() for net in nets]
        mean = {n: sum(c * w[n] for c, w in zip(counts, own, strict=True)) / sum(counts) for n in own[0] if average(n)}
        received = mean
    return own, mean


class PlainGcn(torch.nn.Module):
    """Two GCNConv layers and a linear classifier on one client's graph."""

    def __init__(self, client: Client, weights: State) -> None:
        super().__init__()
        features, hidden = weights["conv1.weight"].shape
        self.conv1, self.conv2 = GCNConv(features, hidden), GCNConv(hidden, hidden)
        self.classifier = torch.nn.Linear(*weights["classifier.weight"].shape)
        self.x, self.edges = torch.from_numpy(dense_features(client)), edge_index(client)
        self.y = torch.from_numpy(client.graph.y)
        self.train_nodes = torch.from_numpy((client.split == TRAIN) & (client.graph.y >= 0))
        self.load(weights)

    def forward(self) -> torch.Tensor:
        h = torch.relu(self.conv1(self.x, self.edges))
        return self.classifier(torch.relu(self.conv2(h, self.edges)))

    def weight(self, name: str) -> torch.Tensor:
        """A weight by our name, [in, out]."""
        layer, kind = name.split(".")
        module = getattr(self, layer)
        if kind == "bias":
            return module.bias
        return (module.weight if layer == "classifier" else module.lin.weight).T

    @torch.no_grad()
    def load(self, weights: State) -> None:
        for name, value in weights.items():
            self.weight(name).copy_(value)

    def weights(self) -> State:
        names = [f"{layer}.{kind}" for layer in ("conv1", "conv2", "classifier") for kind in ("weight", "bias")]
        return {name: self.weight(name).detach().clone() for name in names}


class Wiretap:
    """An engine's messages, copied as they cross: `downs` and `ups`, a dict of tensors a round."""

    def __init__(self, engine: InProcess) -> None:
        self.engine, self.downs, self.ups = engine, [], []
        self._round = engine.round
        engine.round = self.round  # type: ignore[method-assign]

    def round(self, round: int, participants: torch.Tensor, down: dict, evaluate: bool) -> Any:
        self.downs.append(copied(down))
        uploads, report = self._round(round, participants, down, evaluate)
        self.ups.append(copied(uploads))
        return uploads, report


def copied(message: dict[str, Any]) -> State:
    return {name: getattr(value, "tensor", value).detach().clone() for name, value in message.items()}


def without_seconds(records: list[Record]) -> list[Record]:
    return [{k: v for k, v in record.items() if k not in ("seconds", "timings")} for record in records]


def assert_same(one: State, two: State) -> None:
    """Bit by bit; undefined figures are equal too."""
    assert sorted(one) == sorted(two)
    for name in one:
        assert one[name].shape == two[name].shape
        assert torch.allclose(one[name], two[name], rtol=0, atol=0, equal_nan=True), name


def assert_same_training(one: Training, two: Training) -> None:
    """The same records, progress, best models, similarities and states, bit by bit; seconds aside."""
    assert without_seconds(one.records) == without_seconds(two.records)
    mine, other = (replace(t.progress, seconds=0.0, best=replace(t.progress.best, models={})) for t in (one, two))
    assert repr(mine) == repr(other)
    assert_same(one.progress.best.models, two.progress.best.models)
    assert set(one.similarities) == set(two.similarities)
    for round, similarity in one.similarities.items():
        assert torch.equal(similarity, two.similarities[round]), round
    assert_same(one.engine.state(), two.engine.state())


def tapped_run(
    method: Method, clients: Sequence[Client], rounds: int, participation: float
) -> tuple[Training, Wiretap]:
    """A whole training, and all that crossed in it."""
    training = make_training(method, clients, Plan(rounds, participation))
    tap = Wiretap(training.engine)
    training.run()
    return training, tap


def newest_uploads(training: Training, tap: Wiretap) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
    """After each round, the clients that ever sent, and what each of them sent last, by its name: [h, ...]."""
    last: dict[int, dict[str, np.ndarray]] = {}
    for record, sent in zip(training.records, tap.ups, strict=True):
        here = record["participants"]
        senders = range(training.method.context.clients) if here == "all" else here
        for place, m in enumerate(senders):
            last[m] = {name: dense(value)[place].double().numpy() for name, value in sent.items()}
        heard = sorted(last)
        yield heard, {name: np.stack([last[m][name] for m in heard]) for name in sent}
