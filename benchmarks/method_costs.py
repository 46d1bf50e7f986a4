"""Seconds and bytes a round of every method, phase by phase: `python -m benchmarks.method_costs --device cpu`.

Every method trains `--rounds` rounds with its defaults, one after the other in one process. FedAvg is timed again after each of
them, so that a ratio compares two trainings that are neighbours in time. A round's seconds are the median over the rounds of a
phase but the first two, which compile and allocate; they include the evaluation of all clients. Bytes are of one client, in
the same rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import find_method, methods

CASES = (("cora", 10), ("minesweeper", 10))
SKIPPED = 2  # rounds at the start of each phase


def costs(method: str, dataset: str, clients: int, rounds: int, device: str) -> dict[str, dict[str, float]]:
    """By phase: the median seconds of a round, and the mean bytes up and down of one client."""
    run = fedquilt.run(method, dataset=dataset, clients=clients, rounds=rounds, device=device, seeds=[0])
    by_phase: dict[str, list[dict[str, Any]]] = {}
    for record in run.records[0]:
        by_phase.setdefault(record.get("phase", "training"), []).append(record)
    return {
        phase: {
            "seconds": statistics.median(record["seconds"] for record in records),
            "up": statistics.fmean(sum(record["bytes_up"].values()) for record in records) / clients,
            "down": statistics.fmean(sum(record["bytes_down"].values()) for record in records) / clients,
        }
        for phase, records in ((phase, every[min(SKIPPED, len(every) - 1) :]) for phase, every in by_phase.items())
    }


def measure(names: Sequence[str], rounds: int, device: str) -> list[dict[str, Any]]:
    """A row for each case, method and phase; `ratio` is to the mean of FedAvg's seconds before and after."""
    rows = []
    for dataset, clients in CASES:
        usual = ("fedavg", dataset, clients, rounds, device)
        costs(*usual)  # so that the first that counts does not read and cut the graph
        before = costs(*usual)["training"]["seconds"]
        for name in names:
            try:
                found = costs(name, dataset, clients, rounds, device)
            except FedquiltError as error:
                print(f"{dataset} {name}: {error}", flush=True)
                continue
            after = costs(*usual)["training"]["seconds"]
            for phase, row in found.items():
                ratio = 2 * row["seconds"] / (before + after)
                rows.append(
                    {"dataset": dataset, "clients": clients, "method": name, "phase": phase, "ratio": ratio, **row}
                )
                print(
                    f"{dataset:12} {find_method(name).title:12} {phase:12} {1e3 * row['seconds']:8.2f} ms {ratio:6.2f}x "
                    f"{row['up'] / 1e3:9.1f} kB up {row['down'] / 1e3:9.1f} kB down",
                    flush=True,
                )
            before = after
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join(methods()), help="names, separated by commas; all by default")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="write the rows to this JSON file too")
    given = parser.parse_args()
    rows = measure(given.methods.split(","), given.rounds, given.device)
    if given.out is not None:
        name = (
            torch.cuda.get_device_name()
            if given.device.startswith("cuda")
            else f"{torch.get_num_threads()} CPU threads"
        )
        given.out.write_text(json.dumps({"device": name, "torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
