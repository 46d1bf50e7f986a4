"""Run every method under run options in combination: each is a result, or a sentence before anything trains."""

from __future__ import annotations

import json
from pathlib import Path

from fedquilt.methods.base import methods
from fuzz.attempts import Attempt
from fuzz.judge import FINE, Failed, no_leftovers
from fuzz.materials import OUT, TINY, write_graph

ABOUT = "every method under up to five run options at once, and the same run again after a resume"
# By option, values that mean something. An option that changes what clients do, send or are measured by has a row here.
VALUES: dict[str, tuple[str, ...]] = {
    "--participation": ("0.3", "0.6"),
    "--patience": ("1", "2"),
    "--eval-every": ("2", "3"),
    "--epochs": ("2",),
    "--cohort-size": ("1", "2"),
    "--dp-clip": ("1.0 --dp-noise 3.0", "1.0 --dp-epsilon 30"),
    "--hold-out-clients": ("0.3",),
    "--newcomer-epochs": ("3",),
    "--drop-out": ("0.3", "0.9"),
    "--stragglers": ("0.5",),
    "--join-late": ("0.4", "0.4 --join-round 1"),
    "--leave": ("0.4", "0.4 --leave-round 2"),
    "--upload-delay": ("2 --buffer 2",),
    "--batch": ("clusters --batch-nodes 8",),
    "--task": ("link", "link --set-task decoder=mlp", "node-regression"),
    "--feature-noise": ("0.3", "1.0"),
    "--label-noise": ("0.3", "0.5 --label-noise-kind pair"),
    "--attack": (
        *("flip", "noise", "inflated", "stealth", "own-rows", "gaussian --attack-scale 2"),
        *("scaled", "random", "counts", "labels"),
    ),
    "--aggregation": ("median", "trimmed", "clipped", "guarded"),
    "--edge-noise": ("0.2", "1.0"),
    "--class-weights": ("balanced", "1,2,3"),
    "--metric": ("macro-f1", "log-loss", "auc", "ece"),
    "--partition": ("overlapping", "random", "louvain", "label-skew --alpha 0.3", "size-skew"),
    "--min-train": ("2",),
    "--split": ("60/20/20", "5fold"),
    "--keep-copies": ("both",),
    "--prepare": ("standard", "none"),
    "--set-client": ("1:lr=0.001",),
}


def prepare(folder: Path) -> Path:
    """A small graph."""
    return write_graph(folder / "graph.npz")


def attempt(case: Attempt) -> None:
    """Run a method under some options. A run that ends well has a finite result, and a resume changes nothing in it."""
    method = case.rng.choice(sorted(methods()))
    chosen = case.rng.sample(sorted(VALUES), case.rng.randint(1, 5))
    options = [word for name in chosen for word in (name, *case.rng.choice(VALUES[name]).split())]
    base = ("run", "-m", method, "-d", str(case.material), *TINY, "-q", "--out", OUT)
    result = case.folder / OUT / "result.json"
    if case.run(*base, *options).status != FINE:
        if result.exists() or (case.folder / OUT).exists():
            raise Failed("half-written", f"{case.notes}: a folder is left of a run that was refused")
        return
    no_leftovers(case.folder)
    before = result.read_bytes()
    if json.loads(before).get("test_mean") is None:
        raise Failed("no result", f"{case.notes}: the run has no test metric")
    case.run("resume", OUT, "-q")
    if result.read_bytes() != before:
        raise Failed("changed by a resume", f"{case.notes}: result.json is another one after a resume")
