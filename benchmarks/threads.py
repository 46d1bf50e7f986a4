"""A run beside busy processes: how long it takes with each way in which threads may wait for each other.

    python -m benchmarks.threads                       # Local on Cora with five clients, beside 0, 2 and 4 busy loops
    python -m benchmarks.threads --busy 0,4 --repeats 3 --run "--method quilt --dataset pubmed --clients 10"

Each way is a process of its own, `fedquilt run`, because OpenMP reads its environment once. They take turns. "spin" has a
thread for each CPU as OpenMP has them wait by itself (they spin 300,000 times before they sleep), "sleep" as many that sleep
at once, as fedquilt sets it, and "now" is what fedquilt does by default: as many threads as the work is worth, one on a small
graph. The number has to be asked for in the first two, since a run chooses its own. Printed are seconds of training, by the
run's own clock, the median over repeats; the ratio is loaded over unloaded. The load average that is printed includes the
processes of others.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedquilt.devices.threads import available_cpus

_ALL = {"OMP_NUM_THREADS": str(available_cpus())}
WAYS: dict[str, dict[str, str]] = {
    "spin": _ALL | {"GOMP_SPINCOUNT": "300000"},  # GNU's own default
    "sleep": _ALL,
    "now": {},
}
_THREADS = ("OMP_", "GOMP_", "KMP_", "MKL_")


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run so many processes that do nothing but keep a CPU busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def seconds(way: str, run: Sequence[str]) -> float:
    """The seconds of training of one `fedquilt run`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_THREADS)}
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "fedquilt", "run", *run, "--quiet", "--json", "--out", str(Path(folder) / "run")]
        done = subprocess.run(words, env=kept | WAYS[way], capture_output=True, text=True, check=True)
    return sum(seed["seconds"] for seed in json.loads(done.stdout)["seeds"])


def measure(run: Sequence[str], busy: Sequence[int], repeats: int, ways: Sequence[str]) -> dict[int, dict[str, float]]:
    """By the number of busy loops, the median seconds of each way; prints each measurement."""
    out: dict[int, dict[str, float]] = {}
    for count in busy:
        taken: dict[str, list[float]] = {way: [] for way in ways}
        with busy_loops(count):
            for _ in range(repeats):
                for way in ways:
                    taken[way].append(seconds(way, run))
                    load = os.getloadavg()[0]
                    print(f"# {count} busy, load {load:.1f}: {way} {taken[way][-1]:.2f} s", file=sys.stderr, flush=True)
        out[count] = {way: statistics.median(values) for way, values in taken.items()}
    return out


def table(found: dict[int, dict[str, float]]) -> str:
    """Seconds, and the ratio of each row to the first, as Markdown."""
    ways = list(next(iter(found.values())))
    first = next(iter(found.values()))
    lines = [
        "| busy loops | " + " | ".join(f"{way}, s | ratio" for way in ways) + " |",
        "|---:" * (2 * len(ways) + 1) + "|",
    ]
    for count, row in found.items():
        cells = " | ".join(f"{row[way]:.2f} | {row[way] / first[way]:.1f}" for way in ways)
        lines.append(f"| {count} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="--method local --dataset cora --clients 5", help="options of `fedquilt run`")
    parser.add_argument("--busy", default="0,2,4", help="how many busy loops, such as 0,2,4")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"some of {', '.join(WAYS)}")
    parser.add_argument("--repeats", type=int, default=1)
    chosen = parser.parse_args()
    busy = [int(count) for count in chosen.busy.split(",")]
    print(f"fedquilt run {chosen.run}; {available_cpus()} CPUs, load {os.getloadavg()[0]:.1f} at the start.\n")
    print(table(measure(shlex.split(chosen.run), busy, chosen.repeats, chosen.ways.split(","))))


if __name__ == "__main__":
    main()
