"""`python -m benchmarks.cuda_graph_check`: are captured rounds those that run eagerly, on this accelerator, every time?

It repeats the case of tests/integration/test_training_cuda_graphs.py for one method (FedSSA by default), captured and
eager, and reports, without a test framework:

- eager against eager: whether the method itself is deterministic here, and if not, the first operation whose result differs
  (uninitialised memory counts too);
- captured against eager: the first round whose training loss differs, the largest difference of a metric, the first weight;
- what was captured ("clients", "rounds", or why not), and how often CUDA or PyTorch warned, with the first warning.

Needs numpy, scipy, torch, triton and pydantic (settings are checked with it); no METIS, igraph or platformdirs.

    python -m benchmarks.cuda_graph_check --repeat 20
    python -m benchmarks.cuda_graph_check --method fedhero --every 1
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedquilt.cohort.client import Client
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL
from fedquilt.methods.base import RunContext, find_method
from fedquilt.methods.settings import build_settings
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan

SIZES, FEATURES, CLASSES = (180, 150, 210, 165, 195), 10, 3


def make_clients() -> list[Client]:
    """Clients whose labels follow from their features, as the tests have them."""
    rng = np.random.default_rng(0)
    return [make_client(rng, m, nodes) for m, nodes in enumerate(SIZES)]


def make_client(rng: np.random.Generator, number: int, nodes: int) -> Client:
    """One client with a random graph in which nodes of one class are joined more often."""
    y = rng.integers(0, CLASSES, nodes)
    y[:CLASSES] = np.arange(CLASSES)
    u, v = np.triu_indices(nodes, k=1)
    joined = rng.random(len(u)) < np.where(y[u] == y[v], 0.3, 0.08)
    centre = rng.standard_normal((CLASSES, FEATURES)) + 1.5 * np.eye(CLASSES, FEATURES)
    x = (centre[y] + rng.standard_normal((nodes, FEATURES))).astype(np.float32)
    split = np.array([TRAIN, VAL, TEST] * (nodes // 3 + 1), dtype=np.int8)[rng.permutation(nodes)]
    split[np.flatnonzero(split == VAL)[-1]] = NONE
    edges = np.stack([u[joined], v[joined]]).astype(np.int64)
    return Client(number, Graph(f"check/{number}", edges, x, y.astype(np.int64), CLASSES), split)


def make_training(name: str, rounds: int, every: int, device: str, captured: bool) -> Training:
    """A new training of the case."""
    clients = make_clients()
    context = RunContext("check", "disjoint", "accuracy", FEATURES, CLASSES, len(clients), 2, 3)
    kind = find_method(name)
    method = kind(build_settings(kind, context, {"hidden": 8}), context)
    plan = Plan(rounds, evaluate_every=every)
    return Training(method, InProcess(method, clients, device), plan, cuda_graphs=captured)


@contextmanager
def stderr_lines() -> Iterator[list[str]]:
    """Collect what is written to file descriptor 2, where CUDA warns from C++."""
    lines: list[str] = []
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def run(training: Training) -> tuple[Training, list[str]]:
    """Train; all warnings, Python's and those of C++."""
    with warnings.catch_warnings(record=True) as caught, stderr_lines() as lines:
        warnings.simplefilter("always")
        training.run()
    return training, [str(one.message).splitlines()[0] for one in caught] + lines


class Results(TorchDispatchMode):
    """The bits of every operation's result: collected first, then compared with `expected`.

    Attributes:
        first: the number and the name of the first operation whose result differs from the expected one.
    """

    def __init__(self, expected: Sequence[tuple[str, float]] = ()) -> None:
        super().__init__()
        self.sums: list[tuple[str, float]] = []
        self.expected, self.first = list(expected), ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(one, Tensor) and one.layout == torch.strided and one.is_floating_point() and one.is_cuda:
                # A sum of bit patterns is exact, whatever the order.
                bits = one.detach().contiguous().view(torch.int32 if one.element_size() == 4 else torch.int64)
                self._note(str(func), float(bits.long().sum()))
        return out

    def _note(self, name: str, value: float) -> None:
        place = len(self.sums)
        self.sums.append((name, value))
        if not self.first and place < len(self.expected) and self.expected[place] != (name, value):
            self.first = f"operation {place}, {name}"


def first_different_operation(name: str, rounds: int, every: int, device: str) -> str:
    """The first operation whose result differs between two eager trainings; "" where none does."""
    expected: list[tuple[str, float]] = []
    for _ in range(2):
        with Results(expected) as results:
            make_training(name, rounds, every, device, captured=False).run()
        expected = expected or results.sums
    return results.first


def differences(one: Training, two: Training) -> str:
    """How two trainings differ, in one line; "" where all bits are equal."""
    found = []
    for mine, other in zip(one.records, two.records, strict=True):
        if mine.get("train_loss") != other.get("train_loss"):
            gap = abs(mine["train_loss"] - other["train_loss"]) / abs(other["train_loss"])
            found.append(f"training loss from round {mine['round']} on (by {gap:.1e} of it there)")
            break
    gaps = [
        abs(m[p] - o[p]) for m, o in zip(one.records, two.records, strict=True) if "val" in m for p in ("val", "test")
    ]
    if max(gaps) > 0:
        found.append(f"metrics by up to {max(gaps):.3f} points")
    mine_state, other_state = one.engine.state(), two.engine.state()
    names = [n for n, t in mine_state.items() if not torch.equal(t.nan_to_num(), other_state[n].nan_to_num())]
    if names:
        found.append(f"{len(names)} of {len(mine_state)} tensors, such as {names[0]}")
    if one.progress.best.round != two.progress.best.round:
        found.append(f"best round {one.progress.best.round} and {two.progress.best.round}")
    return "; ".join(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; 0 where all is equal, captured and silent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="fedssa")
    parser.add_argument("--every", type=int, default=3, help="rounds between evaluations")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args(arguments)
    case = (chosen.method, chosen.rounds, chosen.every, chosen.device)
    print(f"torch {torch.__version__}, {chosen.method}, evaluated every {chosen.every} of {chosen.rounds} rounds")
    expected, _ = run(make_training(*case, captured=False))
    wrong, warned = 0, 0
    for turn in range(chosen.repeat):
        for captured in (False, True):
            training, said = run(make_training(*case, captured=captured))
            apart = differences(training, expected)
            failed = training.captured is not None and training.captured.startswith("nothing")
            wrong += bool(apart) or failed
            warned += len(said)
            if apart or said or failed:
                kind = f"captured ({training.captured})" if captured else "eager"
                print(f"turn {turn}, {kind}: {apart or 'equal'}; {len(said)} warnings{': ' + said[0] if said else ''}")
    if wrong:
        print(f"first operation that differs between two eager trainings: {first_different_operation(*case) or 'none'}")
    print(f"{wrong} of {2 * chosen.repeat} trainings differ or were not captured; {warned} warnings")
    return int(bool(wrong or warned))


if __name__ == "__main__":
    raise SystemExit(main())
