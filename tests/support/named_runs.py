"""A small run on tables with named nodes, features and classes, as a user has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fedquilt
from fedquilt.runs.finished import Run

CLASSES = ("ill", "well", "unsure")
FEATURES = ("age", "dose", "risk")


def write_tables(folder: Path, nodes: int = 60, seed: int = 0, features: tuple[str, ...] = FEATURES) -> Path:
    """nodes.csv and edges.csv: three classes that the features tell apart; ids are p0, p1, ..."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, nodes)
    x = {name: np.round(2.0 * (y == place) + rng.standard_normal(nodes), 4) for place, name in enumerate(FEATURES)}
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"p{n},{CLASSES[y[n]]}," + ",".join(str(x[name][n]) for name in features) for n in range(nodes)]
    (folder / "nodes.csv").write_text("\n".join([f"id,label,{','.join(features)}", *rows]) + "\n")
    edges = [f"p{n},p{(n + step) % nodes}" for n in range(nodes) for step in (1, 2)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return folder


def named_run(folder: Path, out: str | None = "run", **options: Any) -> Run:
    """A run on such tables; `out` is its folder beside them, None keeps it in memory."""
    tables = write_tables(folder / "tables")
    wanted: dict[str, Any] = {
        "clients": 3,
        "rounds": 3,
        "device": "cpu",
        "partition": "random",
        "settings": {"hidden": 8},
    }
    return fedquilt.run("fedavg", tables, out=None if out is None else folder / out, **wanted | options)
