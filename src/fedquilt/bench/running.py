"""A whole bench: every method and the plain loops take turns on each cell, then peak memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fedquilt.bench import memory
from fedquilt.bench.cases import Ready
from fedquilt.bench.machine import about
from fedquilt.bench.plain import PLAIN
from fedquilt.bench.result import OURS, PLAIN_LOOP, YARDSTICK, Memory, Result, Row, rows_of
from fedquilt.bench.timing import ROUNDS_A_TURN, Side, take_turns
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import find_method, methods

# Told what is being measured, how much of it is done, and of how much.
Watch = Callable[[str, int, int], None]


def chosen_methods(names: Sequence[str] | None) -> list[str]:
    """The methods to measure, FedAvg first, as all are set against it; None: all that take more than one round."""
    if names is None:
        names = [name for name, method in methods().items() if not method.single_round]
    for name in names:
        if find_method(name).single_round:
            raise FedquiltError(f"Method '{name}' takes one round only, so there is nothing to time; leave it out.")
    return list(dict.fromkeys([YARDSTICK, *names]))


def chosen_device(name: str) -> torch.device:
    """The device of that name, where a bench can use it."""
    device = pick_device(name)
    if device.type not in ("cpu", "cuda"):
        raise FedquiltError(f"A bench cannot run on '{name}'; use auto, cpu or cuda.")
    return device


def bench(
    cells: Sequence[Ready],
    methods: Sequence[str],
    turns: int,
    device: torch.device,
    with_memory: bool,
    data: Path | None = None,
    watch: Watch = lambda what, done, total: None,
) -> Result:
    """Measure the methods on the cells, FedAvg among them.

    Args:
        cells, methods: what to measure; turns: how often each side has its turn; device: where.
        with_memory: peak memory as well; data: the folder with graphs, for processes of their own.
        watch: told how far it is, never while something is timed.
    """
    keep_freed_memory()
    facts = about(device, torch.get_num_threads()) | {"turns": turns, "rounds_a_turn": ROUNDS_A_TURN}
    rows = [row for ready in cells for row in time_cell(ready, methods, turns, device, watch)]
    peaks: list[Memory] = []
    left_out: list[str] = []
    wanted = [(ready, method) for ready in cells for method in methods] if with_memory else []
    for done, (ready, method) in enumerate(wanted):
        watch("memory", done, len(wanted))
        try:
            peaks.append(memory.measure(ready, method, device, data))
        except FedquiltError as error:
            left_out.append(f"The memory of {method} on {ready.cell} is left out: {error}")
    if wanted:
        watch("memory", len(wanted), len(wanted))
    return Result(facts, rows, peaks, left_out)


def time_cell(ready: Ready, methods: Sequence[str], turns: int, device: torch.device, watch: Watch) -> list[Row]:
    """A cell's rows: our methods, and the plain loops of those that have one, in turns."""
    cell = str(ready.cell)
    watch(cell, 0, turns)
    sides: dict[tuple[str, str], Side] = {}
    epochs: dict[str, int] = {}
    for method in methods:
        experiment = ready.experiment(method)
        sides[OURS, method] = experiment.training(0)
        epochs[method] = experiment.config.epochs or 0
        if method in PLAIN:
            sides[PLAIN_LOOP, method] = PLAIN[method](experiment.clients(0), experiment.settings, device)
    return rows_of(cell, take_turns(sides, turns, device, lambda done: watch(cell, done, turns)), epochs)
