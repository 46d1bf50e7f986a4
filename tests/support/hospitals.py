"""Folders of tables as hospitals have them: the same columns in another order, labels as words, not all classes everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

CLASSES = ("burn", "cold", "flu", "none")  # sorted, as the union is
WARDS: dict[str, Sequence[str]] = {
    "hospital-a": ("cold", "flu", "none"),
    "hospital-b": ("flu", "none"),
    "hospital-c": ("burn", "cold", "none"),
}
COLUMNS = ("age", "bmi", "lab")


def write_hospitals(folder: Path, wards: Mapping[str, Sequence[str]] = WARDS, nodes: int = 40) -> list[Path]:
    """Write a folder of tables for each hospital; ids repeat, and the second one has its columns in another order."""
    return [write_hospital(folder / name, held, nodes, seed) for seed, (name, held) in enumerate(wards.items())]


def write_hospital(folder: Path, held: Sequence[str], nodes: int = 40, seed: int = 0, **changes: Any) -> Path:
    """Write the tables of one hospital with these classes; `changes` replace columns (None: no such column)."""
    rng = np.random.default_rng(seed)
    labels = [held[number] for number in rng.integers(0, len(held), nodes)]
    centre = np.array([CLASSES.index(label) for label in labels])[:, None] * np.array([1.5, -1.0, 0.5])
    x = centre + rng.standard_normal((nodes, 3))
    names = COLUMNS if seed != 1 else ("lab", "age", "bmi")
    table: dict[str, Sequence[Any] | None] = {"id": [f"p{number}" for number in range(nodes)], "label": labels}
    table |= {name: [f"{value:.4f}" for value in x[:, COLUMNS.index(name)]] for name in names}
    kept = {name: column for name, column in (table | changes).items() if column is not None}
    folder.mkdir(parents=True, exist_ok=True)
    rows = [",".join(kept), *(",".join(map(str, row)) for row in zip(*kept.values(), strict=True))]
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    same = np.array(labels)[:, None] == np.array(labels)
    u, v = np.nonzero(np.triu(rng.random((nodes, nodes)) < np.where(same, 0.2, 0.03), k=1))
    edges = [f"p{one},p{other}" for one, other in zip(u, v, strict=True)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return folder


def write_hospital_site(folder: Path, graph: Path, **fields: Any) -> Path:
    """Write a site.yaml in `folder` about the tables in `graph`; it permits everything."""
    values = {"name": graph.name, "graph": str(graph), "state": "state", "permits": "all", **fields}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump(values))
    return path
