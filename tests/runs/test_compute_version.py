"""Whether runs still give the numbers of the declared version: a few rounds of every method, held against recorded ones.

When numbers are meant to change, raise COMPUTE_VERSION and record them anew; for a new method, record its numbers beside
the others': `python tests/runs/test_compute_version.py` does either.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fedquilt
from fedquilt.methods.base import methods
from fedquilt.runs.compute_version import COMPUTE_VERSION, compute_version

RECORDED = Path(__file__).with_name("reference_results.json")
COMMON: dict[str, Any] = {"dataset": "patchwork", "rounds": 4, "device": "cpu", "checkpoint_seconds": 1e9}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in methods()},
    "fedsageplus": {"method": "fedsageplus", "settings": {"generator_rounds": 4}},
    "sage": {"method": "fedavg", "settings": {"model": "sage"}},
    "gat": {"method": "local", "settings": {"model": "gat"}},
    "dense": {"method": "fedper", "settings": {"model": "mlp"}},
    "overlapping": {"method": "fedpub", "partition": "overlapping"},
    "natural": {"method": "quilt", "partition": "natural", "clients": None},
    "louvain": {"method": "fedavg", "partition": "louvain", "clients": 5, "min_train": 1},
    "some clients": {"method": "fediih", "participation": 0.4},
    "noise": {"method": "fedhero", "edge_noise": 0.1},
    "attack": {"method": "fedpub", "attack": "gaussian"},
    "held out": {"method": "fedsheafhn", "hold_out_clients": 0.3},
    "median": {"method": "fedavg", "aggregation": "median"},
    "clipped": {"method": "quilt", "aggregation": "clipped"},
    "dp": {"method": "fedssa", "dp_clip": 1.0, "dp_noise": 1.0},
    "folds": {"method": "fedavg", "split": "5fold", "seeds": [1]},
}
# The last bits of sums depend on the processor; after four rounds they are still far behind this.
TOLERANCE = 1e-3


def numbers(case: str) -> list[float]:
    """Losses after each round that is evaluated, the bytes sent, and the norm of every tensor of the personal models."""
    run = fedquilt.run(**{**COMMON, **CASES[case]})
    (seed,) = run.records
    out: list[float] = []
    for record in run.records[seed]:
        losses = [record["train_loss"], record["val_loss"]] if "val_loss" in record else []
        out += [*losses, sum(record["bytes_up"].values())]
    return out + [float(tensor.double().norm()) for _, tensor in sorted(run.models[seed].items())]


@pytest.mark.parametrize("case", CASES)
def test_runs_give_the_numbers_of_the_declared_version(case: str) -> None:
    recorded = json.loads(RECORDED.read_text())
    assert recorded["version"] == COMPUTE_VERSION, "record the numbers of the new version; see the top of this file"
    assert numbers(case) == pytest.approx(recorded["numbers"][case], rel=TOLERANCE), (
        "this run gives other numbers than before: raise COMPUTE_VERSION if that is meant, and record them anew"
    )


def test_version_1_is_written_as_before_versions_were_declared() -> None:
    assert COMPUTE_VERSION != 1 or compute_version() == "dfcb34e4767fbfee"


if __name__ == "__main__":
    torch.set_num_threads(1)
    recorded = json.loads(RECORDED.read_text())
    known = recorded["numbers"] if recorded["version"] == COMPUTE_VERSION else {}
    found = {"version": COMPUTE_VERSION, "numbers": {case: known.get(case) or numbers(case) for case in CASES}}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
