"""`python -m benchmarks.edge_weights`: what edge weights are worth where half of the edges are noise.

A graph is cut by METIS. Every client then gets as many random edges as it has real ones. Real edges weigh 0.5 to 1.5,
random ones 0.05 to 0.15. Each method is trained on the real edges alone, on all edges without their weights, and with them: the
same cut, split and seeds. Prints a Markdown table: mean test accuracy in percent and its deviation over the seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedquilt
from fedquilt.datasets import load_graph
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.prepare import prepare
from fedquilt.methods.base import methods
from fedquilt.partition.fingerprint import fingerprint
from fedquilt.partition.partition import Partition
from fedquilt.partition.source import find_source
from fedquilt.partition.storage import save

REAL, NOISE = (0.5, 1.5), (0.05, 0.15)  # ranges of weights


def with_noise(graph: Graph, cut: Partition, rng: np.random.Generator) -> Graph:
    """The graph with as many random edges inside each client as it has real ones, and weights that tell which are which."""
    owner = np.empty(graph.nodes, dtype=np.int64)
    for number, nodes in enumerate(cut.nodes):
        owner[nodes] = number
    inside = owner[graph.edges[0]]
    inside = inside[inside == owner[graph.edges[1]]]
    drawn = [rng.choice(cut.nodes[m], (2, count)) for m, count in enumerate(np.bincount(inside)) if count]
    noise = np.concatenate(drawn, axis=1)
    weights = [rng.uniform(*REAL, graph.edges.shape[1]), rng.uniform(*NOISE, noise.shape[1])]
    edges = np.concatenate([graph.edges, noise], axis=1)
    return Graph.from_arrays(
        graph.name, edges, graph.x, graph.y, classes=graph.classes, edge_weights=np.concatenate(weights)
    )


def measure(method: str, graph: Graph, cut: Partition, folder: Path, seeds: Sequence[int], rounds: int) -> str:
    """Mean and deviation of the test accuracy over the seeds; `method` may name a backbone, as `fedavg:sage`."""
    file = folder / "cut.npz"
    save(replace(cut, fingerprint=fingerprint(graph)), file)
    name, _, model = method.partition(":")
    settings = {"model": model} if model else {}
    result = fedquilt.run(name, graph, partition=str(file), seeds=list(seeds), rounds=rounds, settings=settings).result
    tests = [seed["test"] for seed in result["seeds"]]
    return f"{np.mean(tests):.1f} ± {np.std(tests, ddof=1) if len(tests) > 1 else 0.0:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join([*methods(), "fedavg:sage", "fedavg:gat"]))
    parser.add_argument("--dataset", default="patchwork")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    chosen = parser.parse_args()
    graph = prepare(*load_graph(chosen.dataset))
    cut = find_source("disjoint", chosen.dataset).partition(graph, chosen.clients, 0)
    noisy = with_noise(graph, cut, np.random.default_rng(0))
    variants = (graph, replace(noisy, edge_weights=None), noisy)
    print(
        "| method | real edges only | with noise, without weights | with noise and weights |\n|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        for method in chosen.methods.split(","):
            found = (measure(method, each, cut, Path(folder), range(chosen.seeds), chosen.rounds) for each in variants)
            print(f"| {method} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
