"""What attacks start from: small graphs, and commands that take a fraction of a second on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.commands import command
from fuzz.hooks import Counter, each_operation
from fuzz.judge import judge
from fuzz.outcomes import outcome

TINY = ("--clients", "3", "--rounds", "3", "--device", "cpu")
SMALL = (*TINY, "--set", "hidden=4")
NODES, FEATURES, CLASSES = 60, 4, 3
STUDY = """title: "Tiny, Table 1: two methods"
claim: Nobody claims anything.
seeds: 2
options: {{dataset: {graph}, rounds: 2, epochs: 1, settings: {{hidden: 4}}}}
axes: {{method: [{{label: Local, method: local}}, {{label: FedAvg, method: fedavg}}], clients: [3]}}
rows: [method]
columns: [clients]
"""
OUT = "out"


def arrays(seed: int = 0, nodes: int = NODES) -> dict[str, np.ndarray]:
    """The arrays of a small graph whose labels can be learned."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, nodes)
    x = (np.eye(CLASSES, FEATURES)[y] * 2 + rng.standard_normal((nodes, FEATURES))).astype(np.float32)
    u, v = np.triu_indices(nodes, k=1)
    chosen = rng.random(len(u)) < np.where(y[u] == y[v], 0.2, 0.05) * NODES / nodes
    return {"edge_index": np.stack([u[chosen], v[chosen]]).astype(np.int64), "x": x, "y": y.astype(np.int64)}


def write_graph(path: Path, seed: int = 0, nodes: int = NODES) -> Path:
    """A small graph as an npz file."""
    np.savez_compressed(path, **arrays(seed, nodes))  # type: ignore[arg-type]
    return path


def write_tables(folder: Path, seed: int = 0) -> Path:
    """The same as tables."""
    made = arrays(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        ",".join([f"n{i}", f"c{label}", *(f"{value:.4f}" for value in row)])
        for i, (row, label) in enumerate(zip(made["x"], made["y"], strict=True))
    ]
    header = ",".join(["id", "label", *(f"f{i}" for i in range(FEATURES))])
    (folder / "nodes.csv").write_text("\n".join([header, *rows]) + "\n")
    edges = [f"n{u},n{v}" for u, v in made["edge_index"].T]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return folder


@dataclass(frozen=True)
class Work:
    """A command that writes the folder `out`, and what comes of it undisturbed.

    Attributes:
        again: the command that goes on after a kill; where it is refused, `arguments` again have to work.
        operations: how many operations on files it takes.
        outcome: see `fuzz.outcomes`.
    """

    name: str
    arguments: tuple[str, ...]
    again: tuple[str, ...]
    operations: int
    outcome: dict[str, Any]
    folder: Path


def work(name: str, arguments: tuple[str, ...], again: tuple[str, ...], place: Path) -> Work:
    """Run a command undisturbed in a folder of its own."""
    place.mkdir(parents=True)
    seen = Counter()
    ended = judge(
        command(arguments, place, before=lambda: each_operation(place, seen), after=lambda: {"count": seen.count})
    )
    if ended.status or ended.value is None:
        raise RuntimeError(f"{name} fails undisturbed: {ended.said}")
    return Work(name, arguments, again, ended.value["count"], outcome(place / OUT), place / OUT)


def commands(graph: Path, study: Path) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """By name: a command that writes the folder `out`, and the one that goes on with it."""
    data = ("-d", str(graph))
    saved = ("--checkpoint-every", "0", "-q", "--out", OUT)
    resume = ("resume", OUT, "-q")
    tune = ("tune", "-m", "fedavg", *data, *SMALL, "--trials", "3", "--into", OUT, "-q")
    run_study = ("study", "run", str(study), "--into", OUT, "-q", "--device", "cpu")
    return {
        "run": (("run", "-m", "fedavg", *data, *SMALL, "--seeds", "0,1", *saved), resume),
        "run-quilt": (("run", "-m", "quilt", *data, *SMALL, *saved), resume),
        "run-fedpub": (("run", "-m", "fedpub", *data, *SMALL, "--participation", "0.7", *saved), resume),
        "compare": (("compare", "--methods", "local,fedavg", *data, *SMALL, *saved), resume),
        "tune": (tune, tune),
        "study": (run_study, run_study),
    }


def prepare_works(folder: Path, wanted: tuple[str, ...] | None = None) -> dict[str, Work]:
    """The commands, each run once undisturbed."""
    graph, study = write_graph(folder / "graph.npz"), folder / "tiny.yaml"
    study.write_text(STUDY.format(graph=graph))
    made = commands(graph, study)
    return {name: work(name, *made[name], folder / name) for name in wanted or made}


Change = Callable[[Path], None]
