"""`python -m benchmarks.before_after OTHER`: what a round takes in another checkout and in this one, in turns of processes.

OTHER is the folder of another checkout (`git worktree add OTHER COMMIT`). Each process trains the methods and the plain loop in
turns. By default processor time with one thread, which other processes on the machine change least; `--clock wall` for time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.scale import words

ROUNDS = 3  # of a turn
CASES = ["cora/disjoint/10", "cora/overlapping/50", "minesweeper/disjoint/10"]


def measure(cases: list[str], methods: list[str], turns: int, clock: str) -> dict[str, list[float]]:
    """Milliseconds a round in this process, by case and method."""
    import torch

    from fedquilt.bench.cases import load_cases, parse_case
    from fedquilt.bench.plain import PLAIN
    from fedquilt.bench.timing import Side
    from fedquilt.devices.allocator import keep_freed_memory

    keep_freed_memory()
    now = time.process_time if clock == "processor" else time.perf_counter
    out: dict[str, list[float]] = {}
    for loaded in load_cases([parse_case(case) for case in cases], methods, "cpu")[0]:
        sides: dict[str, Side] = {method: loaded.resolve(method).training(0) for method in methods}
        run = loaded.resolve("fedavg")
        sides["plain loop"] = PLAIN["fedavg"](run.clients(0), run.settings, torch.device("cpu"))
        for side in sides.values():
            side.advance(ROUNDS)
        for name, side in [*sides.items()] * turns:
            began = now()
            side.advance(ROUNDS)
            out.setdefault(f"{loaded.case} {name}", []).append((now() - began) * 1e3 / ROUNDS)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.before_after",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--cases", type=words, default=CASES)
    parser.add_argument("--methods", type=words, default=["fedavg", "fediih", "fedhero", "fedssa"])
    parser.add_argument("--turns", type=int, default=3, help="of a process; each checkout has as many processes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("processor", "wall"), default="processor")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(measure(chosen.cases, chosen.methods, chosen.turns, chosen.clock)))
        return
    here = Path(__file__).parents[1]
    found: dict[str, dict[str, list[float]]] = {"before": {}, "after": {}}
    for _ in range(chosen.turns):
        for side, folder in (("before", chosen.other), ("after", here)):
            path = os.pathsep.join([str(folder.resolve() / "src"), str(here)])
            environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(chosen.threads)}
            command = [sys.executable, "-m", "benchmarks.before_after", *sys.argv[1:], "--child"]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            for name, times in json.loads(done.stdout).items():
                found[side].setdefault(name, []).extend(times)
    print(f"{'ms a round, median (least)':40}{'before':>18}{'after':>18}")
    for name, before in found["before"].items():
        both = (f"{median(times):9.2f} ({min(times):.2f})" for times in (before, found["after"][name]))
        print(f"{name:40}" + "".join(f"{text:>18}" for text in both))


if __name__ == "__main__":
    main()
