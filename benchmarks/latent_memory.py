"""`python -m benchmarks.latent_memory`: peak memory of FedHERO at one client whose n x n matrix would not fit.

A dense matrix of all pairs of 20,000 nodes is 1.6 GB, and training would hold several; chunks of scores and the kept pairs
have to stay below 4 GB in all. Fails where they do not.
"""

from __future__ import annotations

import argparse
import time
from typing import get_args

import numpy as np
import scipy.sparse as sp
import torch

from fedquilt.bench.memory import peak_mb
from fedquilt.cohort.client import Client
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import RunContext, find_method
from fedquilt.methods.settings import build_settings
from fedquilt.nn.structure import Learner
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan

FEATURES, FILLED, CLASSES, DEGREE = 500, 64, 5, 10
LIMIT_MB = 4096


def random_client(nodes: int) -> Client:
    """A random graph of average degree 10; 64 of 500 features at every node, some of which tell its class."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, nodes, (2, nodes * DEGREE // 2))
    edges = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    y = rng.integers(0, CLASSES, nodes)
    columns = rng.random((nodes, FEATURES)).argpartition(FILLED, axis=1)[:, :FILLED]
    columns[:, 0] = y
    rows = np.repeat(np.arange(nodes), FILLED)
    x = sp.csr_matrix((np.ones(rows.size, dtype=np.float32), (rows, columns.ravel())), shape=(nodes, FEATURES))
    split = rng.integers(0, 3, nodes).astype(np.int8)
    return Client(0, Graph("random", edges, x, y, CLASSES), split)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latent_memory", description=__doc__)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--learner", choices=get_args(Learner), default="heads")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    keep_freed_memory()
    client = random_client(chosen.nodes)
    context = RunContext("random", "one client", "accuracy", FEATURES, CLASSES, clients=1, epochs=1, seed=0)
    method = find_method("fedhero")
    settings = build_settings(method, context, {"k": 20, "hidden": 128, "learner": chosen.learner})
    made = method(settings, context)
    training = Training(made, InProcess(made, [client]), Plan(chosen.rounds))
    before, began = peak_mb(), time.perf_counter()
    training.run()
    seconds, peak = time.perf_counter() - began, peak_mb()
    print(
        f"{chosen.nodes} nodes, {client.graph.edges.shape[1]} edges, learner {chosen.learner}: {chosen.rounds} rounds"
    )
    print(f"in {seconds:.1f} s, peak {peak:.0f} MB ({before:.0f} MB before training)")
    losses = ", ".join(f"{record['train_loss']:.4f}" for record in training.records)
    print(f"training loss {losses}; test {training.records[-1]['test']:.1f}")
    if peak > LIMIT_MB:
        raise SystemExit(f"more than {LIMIT_MB} MB")


if __name__ == "__main__":
    main()
