"""Run folders for the tests of the HTML report, written without training anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.runs.folder import RunFolder

HOSTILE = "</script><img src=x onerror=alert(1)>{{data}}"


def write_run(
    path: Path,
    method: str = "fedpub",
    seeds: Sequence[int] = (0, 1),
    rounds: int = 12,
    clients: int = 4,
    dataset: str = "cora",
    factors: int | None = None,
    similarity: bool = True,
    timings: bool = True,
    classes: int | None = 3,
    done: bool = True,
    level: float = 70.0,
    views: Sequence[str] = (),
    more: dict[str, Any] | None = None,
) -> Path:
    """A run folder as `fedquilt run` would leave it; `factors` of None means matrices [M, M], `views` have weights."""
    folder = RunFolder.create(path, "run")
    folder.config = {
        "method": method,
        "dataset": dataset,
        "partition": "disjoint",
        "clients": clients,
        "seeds": list(seeds),
        "rounds": rounds,
        "metric": "accuracy",
        "settings": {"lr": 0.01},
        "attack": None,
        "attack_scale": 5.0,
        "data": None,
        "resolved": {
            "settings": {"lr": 0.01, "hidden": 8, **({"views": ",".join(views)} if views else {})},
            "graph": {"nodes": 90},
            "device": "cpu",
        },
        "versions": {"fedquilt": "0.1.0", "torch": "2"},
        **(more or {}),
    }
    for seed in seeds:
        rng = np.random.default_rng([seed, len(method), clients])
        place, records = folder.seed(seed), []
        for number in range(rounds):
            value = level + 15 * (1 - math.exp(-number / (rounds / 4))) + seed
            tests = (value + rng.normal(0, 6, clients)).clip(0, 100).tolist()
            record = {
                "round": number,
                "bytes_up": {"model.weight": 4000, "embedding": 500},
                "bytes_down": {"model.weight": 4000} if number else {},
                "val": value + 0.5,
                "test": float(np.mean(tests)),
                "clients": {"val": tests, "test": tests},
                "seconds": 0.02,
            }
            if timings:
                record["timings"] = {"train": 0.012, "evaluate": 0.005, "server": 0.001}
            if views:
                record["diagnostics"] = {f"view_{name}": 1 / len(views) for name in views}
            records.append(record)
            place.append(record)
        if similarity:
            shape = (clients, clients) if factors is None else (factors, clients, clients)
            matrices = {}
            for key in ("0", "4", "9", "-1"):
                half = rng.uniform(0.2, 0.9, shape)
                matrices[key] = (half + half.swapaxes(-1, -2)) / 2
                matrices[key][..., np.arange(clients), np.arange(clients)] = 1.0
            place.save_arrays("similarity", matrices)
        if views:
            place.save_arrays("findings", {"views": rng.dirichlet(np.ones(len(views)), clients)})
        sizes = rng.integers(20, 40, clients)
        cut = {"nodes": np.arange(sizes.sum()), "sizes": sizes, "split": np.zeros(sizes.sum(), dtype=np.int8)}
        if classes is not None:
            cut["class_counts"] = np.stack([rng.multinomial(size, np.ones(classes) / classes) for size in sizes])
        place.save_arrays("split-and-partition", cut)
        if done:
            best = records[-1]
            place.finish(
                {
                    "seed": seed,
                    "best_round": best["round"],
                    "val": best["val"],
                    "test": best["test"],
                    "seconds": 0.02 * rounds,
                    "seconds_per_round": 0.02,
                    "upload_bytes": 4500 * rounds,
                    "download_bytes": 4000 * (rounds - 1),
                    "rounds_run": rounds,
                    "metric": "accuracy",
                    "clients_test": best["clients"]["test"],
                }
            )
    return path
