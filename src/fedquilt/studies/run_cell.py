"""One cell carried out: from where it was left, to what is kept of it."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedquilt.common.version import VERSION
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import execute_run, resume_run
from fedquilt.runs.finished import Run
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.cells import Cell
from fedquilt.studies.cross_evaluation import at_clients, at_neighbours, check_split, whole
from fedquilt.studies.measures import measure_partition, measure_run
from fedquilt.studies.store import CellStore

DONE, FAILED, BROKEN, HELD = "done", "failed", "broken", "held"
# Called with the rounds done and the rounds in all.
OnRound = Callable[[int, int], None]


def carry_out(cell: Cell, keeping: CellStore, keep_models: bool = False, on_round: OnRound | None = None) -> str:
    """Run a cell to its end unless it is done.

    DONE; FAILED, the reason is kept; BROKEN, the same, but by an error that nobody foresaw, after which an accelerator may not
    work any more in this process; or HELD, another process runs it.
    """
    with keeping.hold(cell) as mine:
        if not mine:
            return HELD
        if keeping.done(cell) is not None:
            keeping.tidy(cell)
            return DONE
        began = time.monotonic()
        try:
            measures = _measures(cell, keeping.folder(cell), on_round)
        except Exception as error:
            foreseen = isinstance(error, FedquiltError)
            kind = "" if foreseen else f"something went wrong inside: {type(error).__name__}: "
            keeping.fail(cell, kind + " ".join(str(error).split()))
            return FAILED if foreseen else BROKEN
        facts = {
            "kind": cell.kind,
            "config": {k: v for k, v in cell.config.model_dump().items() if k != "data"},
            "measures": measures,
            "seconds": time.monotonic() - began,
            "finished": time.time(),
            "device": _device_name(cell.config),
            "versions": {"fedquilt": VERSION, "torch": torch.__version__, "python": platform.python_version()},
        }
        keeping.finish(cell, facts, keep_models)
        return DONE


def _measures(cell: Cell, folder: Path, on_round: OnRound | None) -> dict[str, float | None]:
    if cell.kind == "partition":
        return measure_partition(ResolvedRun(cell.config), cell.seed)
    if cell.kind == "oracle":
        check_split(cell.config)
    config = whole(cell.config) if cell.kind == "oracle" else cell.config
    run = _train(config, folder, on_round)
    experiment = ResolvedRun(config)
    values = measure_run(experiment, run)
    if "test.neighbour" in cell.dear:
        values["test.neighbour"] = at_neighbours(experiment, run)
    if cell.kind == "oracle":
        values |= at_clients(cell.config, run)
    return values


def _train(config: RunConfig, folder: Path, on_round: OnRound | None) -> Run:
    """Train, or go on with a training that was killed; what was killed before it could be resumed starts anew."""

    def watch(config: RunConfig, seed: int, rounds: int) -> Callable[[dict[str, Any]], None]:
        return lambda record: on_round(record["round"] + 1, rounds) if on_round is not None else None

    if (folder / "config.json").is_file():
        # It may have been begun on another machine, or with the graphs in another folder.
        run = RunFolder(folder)
        run.config = run.config | {"device": config.device, "data": config.data}
        return resume_run(folder, watch)
    if folder.exists():
        shutil.rmtree(folder)
    return execute_run(config, folder, watch=watch)


def _device_name(config: RunConfig) -> str:
    device = pick_device(config.device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
