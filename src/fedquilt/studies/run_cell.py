"""Run one cell: train or resume it, measure it, and store the result."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedquilt.common.machine_limits import find_limit
from fedquilt.common.version import VERSION
from fedquilt.devices.device import pick_device
from fedquilt.devices.peak_memory import PeakMemory
from fedquilt.errors import FedquiltError
from fedquilt.runs.callbacks import Callback
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import check_config, check_ground, create_folder, run_seeds
from fedquilt.runs.finished import Run
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.seal import UNSEALED, VERSION_KIND
from fedquilt.studies.cells import Cell
from fedquilt.studies.cross_evaluation import at_clients, at_neighbours, check_split, whole_graph
from fedquilt.studies.latent_graphs import measure_latent_graphs
from fedquilt.studies.measures import measure_links, measure_partition, measure_run
from fedquilt.studies.store import CellStore

DONE, FAILED, BROKEN, FULL, HELD = "done", "failed", "broken", "full", "held"
# Called with the number of finished rounds and of all rounds.
OnRound = Callable[[int, int], None]


def run_cell(cell: Cell, store: CellStore, keep_models: bool = False, on_round: OnRound | None = None) -> str:
    """Run a cell to its end unless it is done, and return its outcome.

    DONE; FAILED, with the reason in the store; BROKEN, the same after an unexpected error, which may have left the accelerator
    unusable in this process; FULL, the same where memory ran out; or HELD: another process runs it.
    """
    with store.lock(cell) as acquired:
        if not acquired:
            return HELD
        if store.get(cell) is not None:
            store.clean_up(cell)
            return DONE
        began, peak = time.monotonic(), PeakMemory(pick_device(cell.config.device))
        again: list[str] = []
        try:
            measures = _measures(cell, store.folder(cell), on_round, again)
        except Exception as error:
            limit = find_limit(error)
            if limit is not None and limit.kind in ("disk", "files", "processes"):
                raise  # every other cell would meet it as well
            if limit is not None and not isinstance(error, FedquiltError):
                store.fail(cell, limit.sentence())
                return FULL  # another cell may need less, in a new process
            expected = isinstance(error, FedquiltError)
            kind = "" if expected else f"something went wrong inside: {type(error).__name__}: "
            store.fail(cell, kind + " ".join(str(error).split()))
            return FAILED if expected else BROKEN
        facts = {
            "kind": cell.kind,
            "config": {k: v for k, v in cell.config.model_dump().items() if k != "data"},
            "measures": measures,
            "seconds": time.monotonic() - began,
            "memory": peak.read(),
            "finished": time.time(),
            "device": device_name(cell.config.device),
            "versions": {"fedquilt": VERSION, "torch": torch.__version__, "python": platform.python_version()},
        }
        if again:
            facts["begun_again"] = again[0]
        store.finish(cell, facts, keep_models)
        return DONE


def _measures(cell: Cell, folder: Path, on_round: OnRound | None, again: list[str]) -> dict[str, float | None]:
    """By name, the values of a cell; its run is resolved once, an oracle's on the clients and on the whole graph.

    Where a run in `folder` could not go on, `again` gets the reason why it was begun again.
    """
    resolved = ResolvedRun(cell.config)
    if cell.kind == "partition":
        return measure_partition(resolved, cell.seed)
    trained = resolved
    if cell.kind == "oracle":
        trained = ResolvedRun(whole_graph(cell.config))
        check_split(resolved, trained)
    run = _train(trained, folder, on_round, again)
    values = measure_run(trained, run)
    if "test.neighbour" in cell.extra:
        values["test.neighbour"] = at_neighbours(trained, run)
    if any(name.startswith("links.") for name in cell.extra):
        values |= measure_links(trained, run)
    if any(name.startswith("latent.") for name in cell.extra):
        values |= {f"latent.{name}": value for name, value in measure_latent_graphs(trained, run).items()}
    if cell.kind == "oracle":
        values |= at_clients(resolved, run)
    return values


def _train(resolved: ResolvedRun, path: Path, on_round: OnRound | None, again: list[str]) -> Run:
    """Train in the folder `path`, or resume the training there."""
    # A cell has the settings of its study or is no result of it.
    resolved.config = resolved.config.model_copy(update={"on_divergence": "stop"})
    folder = _begun(resolved, path, again)
    if folder is None:
        if path.exists():
            shutil.rmtree(path)
        folder = create_folder(resolved, path)
    with folder.lock():
        return run_seeds(resolved, folder, None if on_round is None else _RoundsDone(on_round))


class _RoundsDone(Callback):
    """Tells how many rounds are done, and how many there are."""

    def __init__(self, tell: OnRound) -> None:
        self._tell, self._rounds = tell, 0

    def start(self, config: RunConfig, seed: int, rounds: int) -> None:
        """Remember the rounds."""
        self._rounds = rounds

    def round(self, record: dict[str, Any]) -> None:
        """Tell."""
        self._tell(record["round"] + 1, self._rounds)


def _begun(resolved: ResolvedRun, path: Path, again: list[str]) -> RunFolder | None:
    """The run in the folder `path` where the cell can go on with it; None where it has to begin.

    The key of the cell names its graph, partition, settings and computation, so a run with another seal was changed or damaged;
    it is not finished, so that it begins again, and cell.json says why. A run that an earlier version began, without a seal,
    goes on.
    """
    if not (path / "config.json").is_file():
        return None
    folder = RunFolder(path)
    folder.sweep()
    try:
        accepted = check_config(folder, (VERSION_KIND, UNSEALED))
        check_ground(folder, resolved, accepted)
    except FedquiltError as error:
        again.append(str(error))
        return None
    # The cell may have been started on another machine, or with the graphs in another folder.
    folder.config = folder.config | {"device": resolved.config.device, "data": resolved.config.data}
    return folder


def device_name(name: str) -> str:
    """The name of the device that `--device` asks for, as cell.json has it."""
    device = pick_device(name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
