"""Studies with made-up cells, and what their figures show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedquilt.runs.folder import SeedFolder
from fedquilt.studies.cells import Cell, expand
from fedquilt.studies.figures.drawing import study_figures
from fedquilt.studies.gather import summarise
from fedquilt.studies.published import Published
from fedquilt.studies.spec import read_study
from fedquilt.studies.store import CellStore
from fedquilt.studies.summary import Summary

ROUNDS = 6
HEAD = """
title: "Ours, Table 1: a study"
claim: It works.
seeds: 2
options: {dataset: patchwork, partition: natural, rounds: 6}
rows: [method]
columns: [epochs]
values: {test: Accuracy (%)}
axes:
  method:
    - {label: Local, method: local}
    - {label: FedAvg, method: fedavg}
    - {label: FED-PUB, method: fedpub}
  epochs: [1, 3, 10]
"""


def store_made_up(cell: Cell, into: Path, number: int) -> None:
    """Store a cell as `run_cell` does, with made-up numbers."""
    folder = CellStore(into).folder(cell)
    seed = SeedFolder(folder / f"seed-{cell.seed}")
    level = 60.0 + number % 17
    for r in range(ROUNDS):
        seed.append({"round": r, "val": level + r, "test": level + r if r != 2 else None})
    rng = np.random.default_rng(number)
    square = rng.random((6, 6))
    shape = np.stack([square, square.T]) if cell.config.method == "fedavg" else square
    seed.save_arrays("similarity", {"0": shape, "-1": shape})
    seed.save_arrays(
        "findings",
        {
            "coefficients": rng.random((6, 4)),
            "class_means": rng.random((6, 3, 5)),
            "class_counts": np.full((6, 3), 4),
        },
    )
    facts = {
        "config": {k: v for k, v in cell.config.model_dump().items() if k != "data"},
        "measures": {"test": level + ROUNDS, "val": level, "best_round": 5.0, "nodes": 100.0 * (1 + number % 9)},
        "finished": 1.0,
        "device": "CPU",
        "versions": {"fedquilt": "0", "torch": "0"},
    }
    CellStore(into).finish(cell, facts, keep_models=True)


def made_up(
    tmp_path: Path, text: str, done: int | None = None, printed: dict[str, float] | None = None, pick: str = ""
) -> Summary:
    """A study of which the first `done` cells are stored, or those whose label has `pick`; `printed` by method."""
    (tmp_path / "mine.yaml").write_text(text)
    study = read_study(tmp_path / "mine.yaml", "fedpub-mine")
    cells, missing = expand(study)
    for number, cell in enumerate(cells[: len(cells) if done is None else done]):
        if pick in cell.label:
            store_made_up(cell, tmp_path / "kept", number)
    published = [
        Published(at, value, printed[at["method"]], 0.1)
        for at in study.places()
        for value in study.values
        if printed and at["method"] in printed
    ]
    return summarise(study, cells, missing, published, CellStore(tmp_path / "kept"))


def drawn(summary: Summary, **more) -> dict:
    return dict(study_figures(summary, **more))


def panels(figure) -> list:
    return [axes for axes in figure.axes if axes.axison and not axes.get_label().startswith("<colorbar")]


def named(axes) -> list[str]:
    return [str(line.get_label()) for line in axes.get_lines() if not str(line.get_label()).startswith("_")]


def key(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]
