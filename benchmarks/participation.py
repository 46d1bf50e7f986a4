"""`python -m benchmarks.participation`: rounds in which some clients sit out, captured and eager, on this accelerator.

Captured, all clients compute and those who sit out keep their states (`fedquilt.training.device_attendance`); eager, a cohort
of the participants is made and trained. For each graph, share and method it prints milliseconds a round of both (the median of
blocks of rounds after a warm-up; the two take turns), what was captured, and how far apart their validation metrics, training
losses and the results are, in points.

    python -m benchmarks.participation                                   # small and large graphs, four shares, three methods
    python -m benchmarks.participation --methods all --graphs cora:20 --shares 0.3 --rounds 40
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from fedquilt.methods.base import methods
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.training import device_attendance
from fedquilt.training.loop import Training

GRAPHS = ("cora:20", "minesweeper:20", "mosaic;nodes=100000:100")
SHARES = (0.1, 0.3, 0.5, 0.8)
METHODS = ("fedavg", "fedpub", "quilt")
WARM_UP, BLOCK = 12, 8


def begin(graph: str, share: float, method: str, rounds: int, data: Path | None, capture: bool) -> Training:
    """A training with seed 0; `graph` is a dataset and the number of clients."""
    dataset, _, clients = graph.rpartition(":")
    options = {
        "dataset": dataset.replace(";", ":"),
        "clients": int(clients),
        "method": method,
        "participation": share,
        "rounds": rounds,
        "seeds": [0],
        "data": None if data is None else str(data),
        "device": "cuda",
    }
    if dataset.startswith("mosaic"):
        options |= {"partition": "natural", "clients": None}
    one = ResolvedRun(RunConfig.build(options)).training(0)
    return Training(one.method, one.engine, one.plan, cuda_graphs=capture)


def milliseconds(one: Training, rounds: int) -> float:
    """Train so many rounds; milliseconds of each."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    one.advance(rounds)
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / rounds


def compare(graph: str, share: float, method: str, rounds: int, data: Path | None) -> str:
    """One line of the table."""
    captured, eager = (begin(graph, share, method, rounds, data, capture) for capture in (True, False))
    times: dict[bool, list[float]] = {True: [], False: []}
    while captured.progress.next_round < rounds:
        for which, one in ((True, captured), (False, eager)):
            count = min(BLOCK, rounds - one.progress.next_round)
            took = milliseconds(one, count)
            if one.progress.next_round > WARM_UP:
                times[which].append(took)
    apart = {
        key: max(
            abs((a.get(key) or 0.0) - (b.get(key) or 0.0)) for a, b in zip(captured.records, eager.records, strict=True)
        )
        for key in ("val", "train_loss")
    }
    test = abs(captured.progress.best.test - eager.progress.best.test)
    same = all(a["participants"] == b["participants"] for a, b in zip(captured.records, eager.records, strict=True))
    new, old = (statistics.median(times[which]) for which in (True, False))
    where = f"{graph:24s} {share:5.2f} {method:12s} {new:9.2f} {old:9.2f} {old / new:6.1f}"
    figures = f"{apart['val']:7.3f} {apart['train_loss']:8.1e} {test:6.3f}"
    return f"{where} {figures}  {captured.captured or 'nothing'}{'' if same else ', OTHER PARTICIPANTS'}"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(GRAPHS), help="datasets with their clients, such as cora:20")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    parser.add_argument("--methods", default=",".join(METHODS), help="names, or all")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--data", type=Path)
    args = parser.parse_args(argv)
    device_attendance.LEAST_SHARE = 0.0  # measure below it as well
    names = args.methods.split(",")
    if names == ["all"]:
        names = [name for name, kind in methods().items() if not kind.single_round and not kind.pools_graphs]
    print(
        "graph:clients            share method         captured  eager ms  ratio   |val|   |loss| |test|  what is captured"
    )
    for graph in args.graphs.split(","):
        for share in map(float, args.shares.split(",")):
            for name in names:
                try:
                    print(compare(graph, share, name, args.rounds, args.data), flush=True)
                except Exception as error:
                    print(f"{graph:24s} {share:5.2f} {name:12s} {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
