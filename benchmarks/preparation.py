"""`python -m benchmarks.preparation`: time and peak memory of everything before the first round, step by step.

Synthetic graphs (`mosaic`) from 10^4 to 10^6 nodes are cut by METIS into 10 to 10,000 clients, with the exponents to which
seconds grow with nodes and with clients; then PubMed, from loading it to the first round, for three methods. A process for each
row, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import numpy as np

from fedquilt.bench.memory import peak_mb

STEPS = ("graph", "partition", "split", "clients", "cohorts")
MIN_NODES = 20  # of a client, on average
METHODS = ("fedavg", "fedpub", "quilt")
PUBMED = (("disjoint", 10), ("disjoint", 20), ("overlapping", 50))

T = TypeVar("T")


@dataclass
class Steps:
    """Seconds of each step and the process's peak memory after it."""

    seconds: dict[str, float] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)

    def take(self, name: str, step: Callable[[], T]) -> T:
        began = time.perf_counter()
        made = step()
        self.seconds[name] = time.perf_counter() - began
        self.megabytes[name] = peak_mb()
        return made


def synthetic(nodes: int, clients: int) -> Steps:
    """Make a graph, its partition, its clients, and the constant operators that the first round of a GCN needs."""
    from fedquilt.cohort.client import clients_of
    from fedquilt.cohort.cohort import Cohort
    from fedquilt.datasets.load import load_graph
    from fedquilt.graphs.prepare import prepare
    from fedquilt.graphs.split import draw_split
    from fedquilt.partition.make import make_partition
    from fedquilt.partition.training_nodes import check_training_nodes

    def operators() -> None:
        cohort = Cohort(made)
        _ = cohort.gcn, cohort.smoothed, cohort.training.gcn

    steps = Steps()
    graph, protocol = steps.take("graph", lambda: load_graph(f"mosaic:nodes={nodes}"))
    graph = prepare(graph, protocol)
    partition = steps.take("partition", lambda: make_partition(graph, "disjoint", clients))
    split = steps.take("split", lambda: draw_split(graph, protocol.split, 0))
    check_training_nodes(partition, split)
    made = steps.take("clients", lambda: clients_of(graph, partition, split))
    steps.take("cohorts", operators)
    return steps


def pubmed(kind: str, clients: int, method: str) -> Steps:
    """Load, partition and split PubMed; make clients and engine; train two rounds, of which the first prepares more."""
    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.resolve import ResolvedRun

    values = {"dataset": "pubmed", "partition": kind, "clients": clients, "method": method, "device": "cpu"}
    steps = Steps()
    run = steps.take("cut", lambda: ResolvedRun(RunConfig.build(values)))
    training = steps.take("engine", lambda: run.training(0))
    steps.take("first round", lambda: training.advance(1))
    steps.take("second round", lambda: training.advance(1))
    return steps


def measure_in_process(*arguments: object) -> Steps:
    """The steps of one row, measured in a separate process."""
    command = [sys.executable, "-m", "benchmarks.preparation", "--row", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return Steps(**json.loads(done.stdout))


def one_row(arguments: Sequence[str]) -> None:
    steps = (
        synthetic(*map(int, arguments))
        if len(arguments) == 2
        else pubmed(arguments[0], int(arguments[1]), arguments[2])
    )
    print(json.dumps(asdict(steps)))


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> str:
    """b of the least-squares fit seconds = a size^b."""
    if len(set(sizes)) < 2:
        return "-"
    slope = np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-9)), 1)[0]
    return f"{slope:.2f}"


def line(name: str, columns: Sequence[str]) -> None:
    print(f"{name:26}" + "".join(f"{column:>16}" for column in columns), flush=True)


def synthetic_table(nodes: Sequence[int], clients: Sequence[int]) -> None:
    line("seconds (peak MB)", (*STEPS, "all"))
    rows: dict[tuple[int, int], Steps] = {}
    for n in nodes:
        for m in clients:
            if n < MIN_NODES * m:
                continue
            rows[n, m] = steps = measure_in_process(n, m)
            columns = [f"{steps.seconds[step]:.2f} ({steps.megabytes[step]:,.0f})" for step in STEPS]
            line(f"{n:,} in {m:,}", (*columns, f"{sum(steps.seconds.values()):.2f}"))
    for m in clients:
        sizes = [n for n in nodes if (n, m) in rows]
        fits = [exponent(sizes, [rows[n, m].seconds[step] for n in sizes]) for step in STEPS]
        line(f"grows with nodes^, in {m:,}", fits)
    for n in nodes:
        sizes = [m for m in clients if (n, m) in rows]
        fits = [exponent(sizes, [rows[n, m].seconds[step] for m in sizes]) for step in STEPS]
        line(f"with clients^, of {n:,}", fits)


def pubmed_table() -> None:
    line(
        "\npubmed, seconds",
        ("load, cut", "clients, engine", "first round", "second round", "to first round", "peak MB"),
    )
    for kind, clients in PUBMED:
        for method in METHODS:
            steps = measure_in_process(kind, clients, method)
            cut, engine, first, second = steps.seconds.values()
            values = [cut, engine, first, second, cut + engine + max(0.0, first - second)]
            columns = [*(f"{value:.2f}" for value in values), f"{max(steps.megabytes.values()):,.0f}"]
            line(f"{kind} {clients}, {method}", columns)


def numbers(text: str) -> list[int]:
    return [int(piece) for piece in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preparation", description=__doc__)
    parser.add_argument(
        "--nodes", type=numbers, default=[10_000, 100_000, 1_000_000], help="sizes, such as 10000,100000"
    )
    parser.add_argument("--clients", type=numbers, default=[10, 100, 1_000, 10_000], help="such as 10,1000")
    parser.add_argument("--skip-pubmed", action="store_true")
    parser.add_argument("--row", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.row:
        one_row(chosen.row)
        return
    synthetic_table(chosen.nodes, chosen.clients)
    if not chosen.skip_pubmed:
        pubmed_table()


if __name__ == "__main__":
    main()
