"""Small federations for the tests of methods, engines and the round loop: ragged clients with learnable labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from fedquilt.cohort import Client
from fedquilt.engines.in_process import InProcess
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL
from fedquilt.methods.contract import Method, State, Task, find_method
from fedquilt.methods.settings import build_settings
from fedquilt.training import Plan, Record, Training

SIZES = (25, 14, 31, 9, 18)
FEATURES, CLASSES = 10, 3


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


def make_task(clients: Sequence[Client], **changes: Any) -> Task:
    graph = clients[0].graph
    facts = {
        "dataset": "ragged",
        "partition": "disjoint",
        "metric": "accuracy",
        "features": graph.features,
        "classes": graph.classes,
        "clients": len(clients),
        "epochs": 1,
        "seed": 3,
    }
    return Task(**(facts | changes))


def make_method(name: str, clients: Sequence[Client], task: Task | None = None, **settings: Any) -> Method:
    """A method by name; backbone methods are small unless told otherwise."""
    cls, task = find_method(name), task or make_task(clients)
    small = {} if name == "majority" else {"hidden": 8}
    return cls(build_settings(cls, task, small | settings), task)


def make_training(
    method: Method, clients: Sequence[Client], plan: Plan, cohort_size: int | None = None, **options: Any
) -> Training:
    return Training(method, InProcess(method, clients, cohort_size=cohort_size), plan, **options)


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
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def assert_same(one: State, two: State) -> None:
    """Bit by bit."""
    assert list(one) == list(two)
    for name in one:
        assert torch.equal(one[name], two[name]), name
