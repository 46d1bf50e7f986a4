"""`python -m benchmarks.study_kills`: a study killed with SIGKILL at random moments ends with the same report.

A study of four methods with three numbers of clients and three seeds on the built-in graph patchwork is run twice with
`fedquilt study run --jobs 2`, with a checkpoint every 0.2 s: once undisturbed, and once killed again and again (the starting
process only; its workers have to end by themselves) before it is let finish. At each kill a line says how far the study was and
how soon its workers were gone. In the end report.csv, report.md and report.tex of both must be equal byte for byte, no
checkpoint or model may be left, and no cell may have failed. Exit status 1 where that is not so.

Moments are drawn so that the work lasts for all kills: before workers can begin, between cells, and in the middle of cells.
Linux only: it looks into /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STUDY = """
title: "Kills, Table 1: four methods"
claim: Whoever kills it, the numbers are the same.
seeds: 3
options: {dataset: patchwork, rounds: ROUNDS, epochs: 1, settings: {hidden: 32}}
axes:
  method:
    - {label: Local, method: local}
    - {label: FedAvg, method: fedavg}
    - {label: FED-PUB, method: fedpub, candidates: [{lr: 0.01}, {lr: 0.02}]}
    - {label: Quilt, method: quilt}
  clients: [3, 5, 8]
rows: [method]
columns: [clients]
"""
# The command line, with checkpoints more often than a study makes them, so that cells go on from the middle.
DRIVER = """
import sys
from dataclasses import replace


def main():
    from fedquilt.studies import cells

    whole = cells.expand

    def often(*args, **kwargs):
        found, missing = whole(*args, **kwargs)
        every = {"checkpoint_seconds": SECONDS}
        return [replace(cell, config=cell.config.model_copy(update=every)) for cell in found], missing

    cells.expand = often
    from fedquilt.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
"""
REPORTS = ("report.csv", "report.md", "report.tex")
EARLY = 0.2  # the share of kills that come before workers can begin
IMPORTS = 4.0  # seconds until workers can begin
PATIENCE = 30.0  # seconds in which workers have to be gone


def start(folder: Path, into: str) -> subprocess.Popen[bytes]:
    """The study, run by a process of its own."""
    line = f"study run kills.yaml --jobs 2 --device cpu --quiet --into {into}"
    with open(folder / f"{into}.log", "ab") as log:
        return subprocess.Popen([sys.executable, "driver.py", *line.split()], cwd=folder, stdout=log, stderr=log)


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    found = [Path(f"/proc/{pid}/task/{context.name}/children") for context in Path(f"/proc/{pid}/task").iterdir()]
    return [int(child) for path in found for child in path.read_text().split()]


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def state(into: Path) -> str:
    """How far a study is, as its files say."""
    done = len(list(into.glob("cells/*/cell.json")))
    begun = [path for path in into.glob("cells/*") if path.is_dir() and not (path / "cell.json").exists()]
    rounds = [sum(f.read_bytes().count(b"\n") for f in path.glob("seed-*/metrics.jsonl")) for path in begun]
    return f"{done} cells done, begun {len(begun)} (rounds {', '.join(map(str, rounds)) or 'none'})"


def worked(into: Path, since: float) -> bool:
    """Whether a round was trained since then."""
    return any(path.stat().st_mtime >= since for path in into.glob("cells/*/seed-*/metrics.jsonl"))


def kill_once(folder: Path, wait: float, early: bool) -> tuple[str, float] | None:
    """Start the study, kill it so many seconds after its workers were started (`early`) or after the first round.

    How far it was, and how long workers took to end; None where it was through before.
    """
    process, into = start(folder, "killed"), folder / "killed"
    before = len(list(into.glob("cells/*.lock")))
    began = time.time()
    while process.poll() is None and (len(children(process.pid)) < 2 if early else not worked(into, began)):
        time.sleep(0.01)
    until = time.monotonic() + wait
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    if process.poll() is not None:
        return None
    workers = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    ended = time.monotonic()
    while not all(map(gone, workers)):
        if time.monotonic() - ended > PATIENCE:
            raise SystemExit(f"workers {workers} outlive the process that started them")
        time.sleep(0.005)
    begun = len(list(into.glob("cells/*.lock"))) - before
    return f"{state(into)}; {begun} cells first held in this turn", time.monotonic() - ended


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--checkpoint-every", type=float, default=0.2, help="seconds; a study's are 30")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kills.yaml").write_text(STUDY.replace("ROUNDS", str(args.rounds)))
        (folder / "driver.py").write_text(DRIVER.replace("SECONDS", str(args.checkpoint_every)))
        began = time.monotonic()
        if start(folder, "calm").wait() != 0:
            raise SystemExit((folder / "calm.log").read_text())
        cells = [json.loads(path.read_bytes())["seconds"] for path in folder.glob("calm/cells/*/cell.json")]
        longest = 1.5 * sum(cells) / 2 / args.kills
        took = time.monotonic() - began
        print(f"undisturbed: {state(folder / 'calm')}, {took:.1f} s; kills within {longest:.1f} s", flush=True)
        kills = 0
        while kills < args.kills:
            early = rng.random() < EARLY
            wait = rng.random() * (IMPORTS if early else longest)
            found = kill_once(folder, wait, early)
            if found is None:
                print(f"it was through before kill {kills + 1}; use more --rounds", flush=True)
                break
            kills += 1
            when = "start" if early else "round"
            print(
                f"kill {kills}, {wait:.2f} s after the first {when}: {found[0]}; workers gone in {found[1]:.2f} s",
                flush=True,
            )
        status = start(folder, "killed").wait()
        print(f"let finish: status {status}, {state(folder / 'killed')}", flush=True)
        equal = {
            file: (folder / "calm" / "kills" / file).read_bytes() == (folder / "killed" / "kills" / file).read_bytes()
            for file in REPORTS
        }
        left = [
            p for kind in ("checkpoints", "*.safetensors") for p in (folder / "killed").glob(f"cells/*/seed-*/{kind}")
        ]
        failed = list((folder / "killed").glob("cells/*/failed.json"))
        print(f"equal byte for byte: {equal}; left over: {len(left)}; failed: {len(failed)}", flush=True)
        return 0 if status == 0 and kills == args.kills and all(equal.values()) and not left and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
