"""`python -m benchmarks.batches`: memory of training on parts of large graphs, against the whole graphs at once.

A graph `mosaic` of each size with natural clients of a tenth of its nodes, one client in memory at a time (`cohort_size=1`),
and a process for each point, which prints a line of JSON: seconds, and the peak of anonymous memory (what no file backs), after

- graph: the graph is generated, or with --mapped read from a file whose features stay on disk;
- clients: it is cut into clients;
- clusters: METIS has cut each client's graph (nothing unless --batch clusters);
- rounds: FedAvg's rounds, each with an evaluation at all nodes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.scale import status, watched

HIDDEN = 64
CLIENTS = 10


def measure(nodes: int, batch: str, batch_nodes: int, rounds: int, file: str) -> dict[str, object]:
    """Train in this process; the line of a point."""
    from fedquilt.cohort.clusters import clusters_of
    from fedquilt.devices.allocator import keep_freed_memory
    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.resolve import ResolvedRun

    keep_freed_memory()
    values: dict[str, object] = {
        "dataset": file or f"mosaic:nodes={nodes},client={nodes // CLIENTS}",
        "partition": "natural",
        "prepare": "none",
        "method": "fedavg",
        "settings": {"hidden": HIDDEN},
        "device": "cpu",
        "cohort_size": 1,
        "rounds": rounds,
        "batch": batch,
    }
    if batch != "full":
        values["batch_nodes"] = batch_nodes
    found: dict[str, object] = {
        "nodes": nodes,
        "batch": batch,
        "mapped": bool(file),
        "start_mb": status("RssAnon") / 1e6,
    }

    def note(what: str, began: float, peak: int) -> None:
        found[what] = {"seconds": round(time.perf_counter() - began, 1), "mb": round(peak / 1e6)}
        print(f"{nodes} {batch} {what} {found[what]}", file=sys.stderr, flush=True)

    with watched("RssAnon", 0.02) as peak:
        began = time.perf_counter()
        run = ResolvedRun(RunConfig.build(values))
        note("graph", began, peak())
        began = time.perf_counter()
        training = run.training(0)
        note("clients", began, peak())
        began = time.perf_counter()
        if batch == "clusters":
            for cohort in training.engine.cohorts:  # type: ignore[attr-defined]
                clusters_of(cohort.members[0], batch_nodes)
        note("clusters", began, peak())
        began = time.perf_counter()
        training.run()
        note("rounds", began, peak())
    found["resident_mb"] = round(status("VmHWM") / 1e6)
    found["timings"] = [record["timings"] for record in training.records]
    found["test"] = [record["test"] for record in training.records]
    return found


def write_mapped(nodes: int, folder: Path) -> Path:
    """Write the graph with its features in a file of their own, in a process of its own; its path."""
    path = folder / f"mosaic-{nodes}.npz"
    code = (
        "import sys, numpy as np\n"
        "from fedquilt.datasets.entries.mosaic import mosaic\n"
        "from fedquilt.graphs.npz import write_npz\n"
        "n = int(sys.argv[1])\n"
        "write_npz(mosaic(nodes=n), sys.argv[2], clients=np.arange(n) // (n // 10), features_apart=True)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(nodes), str(path)], check=True)
    return path


def main() -> None:
    """Measure each point in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="100000,1000000")
    parser.add_argument("--batch", default="clusters", choices=("clusters", "neighbours", "full"))
    parser.add_argument("--batch-nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--mapped", action="store_true", help="features stay in a file")
    parser.add_argument("--one", nargs=2, metavar=("NODES", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        nodes, file = given.one
        print(json.dumps(measure(int(nodes), given.batch, given.batch_nodes, given.rounds, file)), flush=True)
        return
    options = ["--batch", given.batch, "--batch-nodes", str(given.batch_nodes), "--rounds", str(given.rounds)]
    with tempfile.TemporaryDirectory() as folder:
        for nodes in given.nodes.split(","):
            file = str(write_mapped(int(nodes), Path(folder))) if given.mapped else ""
            command = [sys.executable, "-m", "benchmarks.batches", *options, "--one", nodes, file]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
