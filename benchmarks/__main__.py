"""`python -m benchmarks`: time a round against the plain loop and against FedAvg, in the same process; and peak memory.

Ratios are what to read: the sides take turns, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch

from benchmarks.plain import PlainFedAvg, PlainFedPub
from fedquilt.errors import FedquiltError
from fedquilt.experiment import Experiment
from fedquilt.runs import write_json
from fedquilt.runs.config import RunConfig
from fedquilt.training import Training

CELLS = (
    ("cora", "disjoint", 10, "fedavg"),
    ("cora", "overlapping", 50, "fedavg"),
    ("cora", "disjoint", 10, "fedpub"),
    ("cora", "overlapping", 50, "fedpub"),
)
# Where every method takes turns with FedAvg.
SIDE_BY_SIDE = (("cora", "disjoint", 10), ("minesweeper", "disjoint", 10), ("squirrel", "disjoint", 5))
METHODS = ("fedavg", "fedpub", "fediih", "fedssa", "fedhero", "fedsheafhn", "quilt")
MEMORY = (("cora", "overlapping", 50), ("pubmed", "disjoint", 20))
PLAIN = {"fedavg": PlainFedAvg, "fedpub": PlainFedPub}


def experiment(dataset: str, partition: str, clients: int, method: str) -> Experiment:
    values = {"dataset": dataset, "partition": partition, "clients": clients, "method": method, "device": "cpu"}
    return Experiment(RunConfig.build(values | {"rounds": 100_000}))


def timed(step: Callable[[], object], times: int) -> list[float]:
    out = []
    for _ in range(times):
        began = time.perf_counter()
        step()
        out.append(time.perf_counter() - began)
    return out


def compare(dataset: str, partition: str, clients: int, method: str, rounds: int) -> dict[str, object]:
    """Both sides in turns of a few rounds; medians in milliseconds."""
    ready = experiment(dataset, partition, clients, method)
    ours: Training = ready.training(0)
    plain = PLAIN[method](ready.clients(0))
    step = iter(range(100_000))
    ours_step = lambda: ours._round(next(step))  # noqa: E731
    for _ in range(3):
        ours_step()
        plain.round()
    times: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(rounds):
        times["ours"] += timed(ours_step, 3)
        times["plain"] += timed(plain.round, 1)
    mine, theirs = median(times["ours"]) * 1e3, median(times["plain"]) * 1e3
    best = min(times["ours"]) * 1e3, min(times["plain"]) * 1e3
    return {
        "cell": f"{dataset} {partition} {clients}",
        "method": method,
        "plain_ms": theirs,
        "ours_ms": mine,
        "ratio": theirs / mine,
        "plain_best_ms": best[1],
        "ours_best_ms": best[0],
        "ratio_best": best[1] / best[0],
    }


def side_by_side(dataset: str, partition: str, clients: int, rounds: int) -> list[dict[str, object]]:
    """A round of each method in turns; medians in milliseconds, and as multiples of FedAvg's."""
    trainings = {name: experiment(dataset, partition, clients, name).training(0) for name in METHODS}
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    for r in range(rounds + 2):
        for name, training in trainings.items():
            (seconds,) = timed(partial(training._round, r), 1)
            if r >= 2:  # the first rounds prepare what the others use
                times[name].append(seconds * 1e3)
    middle = {name: median(values) for name, values in times.items()}
    return [
        {
            "cell": f"{dataset} {partition} {clients}",
            "method": name,
            "ms": ms,
            "epochs": trainings[name].method.settings.epochs,
            "times_fedavg": ms / middle["fedavg"],
        }
        for name, ms in middle.items()
    ]


def peak_mb() -> float:
    """Peak resident memory of this process so far. Not ru_maxrss: a child inherits its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def peak(dataset: str, partition: str, clients: int, method: str) -> dict[str, object]:
    """Peak resident memory of a process of its own: with the graph loaded and cut, and after five rounds."""
    code = (
        "import sys\n"
        "from benchmarks.__main__ import experiment, peak_mb\n"
        "from fedquilt.allocator import keep_freed_memory\n"
        "ready = experiment(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])\n"
        "keep_freed_memory()\n"
        "before = peak_mb()\n"
        "training = ready.training(0)\n"
        "training.rounds = 5\n"
        "training.run()\n"
        "print(before, peak_mb())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, dataset, partition, str(clients), method],
        capture_output=True,
        text=True,
        check=True,
    )
    before, most = map(float, done.stdout.split())
    return {"cell": f"{dataset} {partition} {clients}", "method": method, "loaded_mb": before, "peak_mb": most}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--skip-memory", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    from fedquilt.allocator import keep_freed_memory

    keep_freed_memory()
    print(f"{platform.processor() or platform.machine()}, {chosen.threads} threads, torch {torch.__version__}")
    try:
        rows = [compare(*cell, rounds=chosen.rounds) for cell in CELLS]
        beside = [row for cell in SIDE_BY_SIDE for row in side_by_side(*cell, rounds=chosen.rounds)]
    except FedquiltError as error:
        raise SystemExit(f"benchmarks: {error}") from None
    print(
        f"\n{'cell':24} {'method':8} {'plain loop':>11} {'fedquilt':>9} {'ratio':>6} {'best/best':>10}   (ms a round, medians)"
    )
    for r in rows:
        figures = f"{r['plain_ms']:11.1f} {r['ours_ms']:9.1f} {r['ratio']:5.1f}x {r['ratio_best']:9.1f}x"
        print(f"{r['cell']:24} {r['method']:8} {figures}")
    for b in beside:
        figures = f"{b['ms']:9.1f} ms a round of {b['epochs']:2} local epochs, {b['times_fedavg']:5.1f} x FedAvg"
        print(f"{b['cell']:24} {b['method']:10} {figures}")
    memory = [] if chosen.skip_memory else [peak(*cell, method) for cell in MEMORY for method in METHODS]
    for m in memory:
        print(f"{m['cell']:24} {m['method']:10} graph loaded {m['loaded_mb']:6.0f} MB, peak {m['peak_mb']:6.0f} MB")
    if chosen.out:
        about = {"torch": torch.__version__, "threads": chosen.threads}
        write_json(chosen.out, {"rounds": rows, "side_by_side": beside, "memory": memory} | about)


if __name__ == "__main__":
    main()
