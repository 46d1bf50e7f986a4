"""Where the time of a round over Flower goes: three sites and the coordinator on this machine, with real processes.

    python -m benchmarks.flower_round [--rounds 8] [--dataset patchwork] [--method fedavg]

Each round is seen from its slowest site: until its SuperNode fetched the request, until the request was answered (a process
that Flower starts, in which ours are the import of fedquilt and the work itself), until the reply was sent, until the
coordinator had all replies and the next round began. With the site's worker process, and without it (`FEDQUILT_WARM=0`), in
turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from fedquilt.federation.local.rehearsal import Rehearsal
from fedquilt.federation.site.examples import write_sites
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun

SITES = 3
FETCHED, BEGUN, ANSWERED, SENT = "Receiving: train", "Start `flwr-clientapp`", "Sending: train", "Sent successfully"
PARTS = ("until fetched", "Flower fetches and starts a process", "the process", "of it ours", "sending", "until seen")


class Watched:
    """A log whose lines are noted with the time at which they appeared."""

    def __init__(self, path: Path) -> None:
        self.path, self.read, self.lines = path, 0, list[tuple[float, str]]()

    def look(self) -> None:
        if self.path.exists() and self.path.stat().st_size > self.read:
            with open(self.path, "rb") as file:
                file.seek(self.read)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self.read += len(whole)
            now = time.monotonic()
            self.lines += [(now, line) for line in whole.decode(errors="replace").splitlines()]


def measured(sites: list[Path], folder: Path, warm: bool, rounds: int, method: str) -> list[dict[str, float]]:
    """The parts of each round but the first, in which processes warm up."""
    os.environ["FEDQUILT_WARM"] = "1" if warm else "0"
    order = {"sites": SITES, "method": method, "rounds": rounds, "out": str(folder / "run"), "wait": 120.0}
    with Rehearsal(sites, folder / "logs") as rehearsal:
        logs = [Watched(folder / "logs" / f"site-{n}.log") for n in range(SITES)]
        records = Watched(folder / "run" / "seed-0" / "metrics.jsonl")
        run = rehearsal.start_run(order)
        while run.poll() is None:
            for each in (*logs, records):
                each.look()
            time.sleep(0.01)
    out = []
    ends = [(at, json.loads(line)) for at, line in records.lines]
    for (began, _), (ended, record) in pairwise(ends):
        seen = [{part: _first(log, part, began, ended) for part in (FETCHED, BEGUN, ANSWERED)} for log in logs]
        slowest, log = max(zip(seen, logs, strict=True), key=lambda pair: pair[0][ANSWERED])
        sent = _first(log, SENT, slowest[ANSWERED], ended)
        ours = sum(record["timings"].get(part, 0.0) for part in ("prepare", "train"))
        steps = [began, slowest[FETCHED], slowest[BEGUN], slowest[ANSWERED]]
        fetched, started, process = (later - earlier for earlier, later in pairwise(steps))
        parts = (fetched, started, process, ours, sent - slowest[ANSWERED], ended - sent)
        out.append(dict(zip(PARTS, parts, strict=True)) | {"round": ended - began})
    return out


def _first(log: Watched, what: str, after: float, before: float) -> float:
    return next((at for at, line in log.lines if after <= at <= before and what in line), before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--dataset", default="patchwork")
    parser.add_argument("--method", default="fedavg")
    asked = parser.parse_args()
    clients = ResolvedRun(RunConfig(dataset=asked.dataset, clients=SITES, seeds=[0])).clients(0)
    found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as temporary:
        for turn in range(2 * asked.turns):
            folder, warm = Path(temporary) / str(turn), turn % 2 == 0
            sites = write_sites(folder / "sites", clients, permits="all")
            found[warm] += measured(sites, folder, warm, asked.rounds, asked.method)
    print(f"{asked.method} on {asked.dataset}, {SITES} sites, medians of {len(found[True])} rounds, seconds")
    print(f"{'':36} {'warm':>6} {'cold':>6}")
    for part in (*PARTS, "round"):
        medians = [statistics.median(parts[part] for parts in found[which]) for which in (True, False)]
        print(f"{part:36} {medians[0]:6.2f} {medians[1]:6.2f}")


if __name__ == "__main__":
    main()
