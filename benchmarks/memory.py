"""`python -m benchmarks.memory`: the memory that is estimated before a training starts, beside what the training then takes.

Random clients of equal sizes, a process for each measurement: the peak of its resident memory while it trains some rounds, less
what it had before. The estimate is made in a process of its own, so that its own memory does not count.

    python -m benchmarks.memory --clients 1000 --nodes 100 --features 64 --hidden 64
    python -m benchmarks.memory --methods fediih,fedhero --clients 5000 --nodes 100 --features 64
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from fedquilt.cohort.client import Client
from fedquilt.devices.allocator import keep_freed_memory, return_freed_memory
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import Method, RunContext, find_method, methods
from fedquilt.methods.settings import resolve_settings
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.engines.registry import EngineOptions
from fedquilt.training.loop import Training
from fedquilt.training.memory_estimate import estimate_memory
from fedquilt.training.plan import Plan

CLASSES, DEGREE = 5, 6


@dataclass(frozen=True)
class Point:
    """One measurement: `filled` features of each node are not zero (0: all), `cohort_size` 0 is all clients at once."""

    method: str
    clients: int = 100
    nodes: int = 100
    features: int = 64
    filled: int = 0
    hidden: int = 64
    cohort_size: int = 0
    participation: float = 1.0
    rounds: int = 2


@dataclass(frozen=True)
class Compared:
    """Bytes that were estimated and measured, and seconds of the estimate and of a round after the first."""

    point: Point
    estimated: int
    measured: int
    estimate_seconds: float
    round_seconds: float

    @property
    def ratio(self) -> float:
        """The estimate over the measurement."""
        return self.estimated / self.measured


def random_clients(point: Point) -> list[Client]:
    """Clients with random edges, features and labels."""
    rng, n = np.random.default_rng(0), point.nodes
    out = []
    for m in range(point.clients):
        ends = np.sort(rng.integers(0, n, (2, n * DEGREE // 2)), axis=0)
        edges = np.unique(ends[:, ends[0] != ends[1]], axis=1)
        x: Any = rng.standard_normal((n, point.features), dtype=np.float32)
        if point.filled:
            rows, columns = np.repeat(np.arange(n), point.filled), rng.integers(0, point.features, n * point.filled)
            shape = (n, point.features)
            x = sp.csr_matrix((np.ones(rows.size, dtype=np.float32), (rows, columns)), shape=shape)
            x.sum_duplicates()
        graph = Graph(f"random/{m}", edges, x, rng.integers(0, CLASSES, n), CLASSES)
        out.append(Client(m, graph, (rng.permutation(n) % 5).clip(0, 2).astype(np.int8)))
    return out


def make_method(point: Point) -> Method:
    """The method with its defaults, but for the hidden width where it has one."""
    kind = find_method(point.method)
    sizes = (point.features, CLASSES, point.clients)
    context = RunContext("random", "natural", "accuracy", *sizes, epochs=1, seed=0, rounds=point.rounds)
    hidden = {"hidden": point.hidden} if "hidden" in {field.name for field in fields(kind.Settings)} else {}
    return kind(*resolve_settings(kind, context, hidden, 1))


def compare(points: Sequence[Point], on_done: Callable[[Compared], None] = lambda one: None) -> list[Compared]:
    """Estimate and measure each point."""
    out = []
    for point in points:
        clients, method = random_clients(point), make_method(point)
        estimated, seconds = _in_a_process(partial(_estimate, point, method, clients))
        measured, round_seconds = _in_a_process(partial(_measure, point, method, clients))
        out.append(Compared(point, int(estimated), int(measured), seconds, round_seconds))
        on_done(out[-1])
    return out


def _estimate(point: Point, method: Method, clients: Sequence[Client]) -> tuple[float, float]:
    began = time.perf_counter()
    options = EngineOptions(torch.device("cpu"), point.cohort_size or None)
    return estimate_memory(method, clients, options, point.participation).total, time.perf_counter() - began


def _measure(point: Point, method: Method, clients: Sequence[Client]) -> tuple[float, float]:
    keep_freed_memory()
    gc.collect()
    return_freed_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    engine = InProcess(method, clients, cohort_size=point.cohort_size or None)
    training = Training(method, engine, Plan(1_000_000, point.participation))
    training.advance(1)
    began = time.perf_counter()
    rest = method.total_rounds(point.rounds) - 1  # of all its phases
    training.advance(rest)
    return _status("VmHWM") - before, (time.perf_counter() - began) / max(1, rest)


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1]) * 1024


def _in_a_process(act: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """What `act` returns in a copy of this process."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(write, json.dumps(act()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    if os.waitpid(child, 0)[1]:
        raise SystemExit("A measurement failed; see above.")
    first, second = json.loads(text)
    return first, second


def show(one: Compared) -> None:
    """Print a line."""
    p = one.point
    size = f"{p.clients:>6,} x {p.nodes:<6,} F {p.features:<5}" + (f" ({p.filled})" if p.filled else "")
    size += f" H {p.hidden}" + (f" cohorts of {p.cohort_size}" if p.cohort_size else "")
    print(
        f"{p.method:11} {size:44} measured {one.measured / 1e6:8,.0f} MB  estimated {one.estimated / 1e6:8,.0f} MB  "
        f"ratio {one.ratio:.2f}  estimate {one.estimate_seconds:.1f} s, round {one.round_seconds:.2f} s",
        flush=True,
    )


def main() -> None:
    """Compare estimates with measurements."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(methods()))
    for name in ("clients", "nodes", "features", "filled", "hidden", "cohort_size", "rounds"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=Point.__dataclass_fields__[name].default)
    parser.add_argument("--participation", type=float, default=1.0)
    parser.add_argument("--json", action="store_true", help="print one JSON line for each instead")
    chosen = vars(parser.parse_args())
    names, as_json = chosen.pop("methods"), chosen.pop("json")
    torch.set_num_threads(1)
    compare(
        [Point(name, **chosen) for name in names],
        (lambda one: print(json.dumps(asdict(one)), flush=True)) if as_json else show,
    )


if __name__ == "__main__":
    main()
