"""Run a whole bench: time all methods and the plain loops in turns on each case, then measure peak memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fedquilt.bench.cases import LoadedCase
from fedquilt.bench.machine import about
from fedquilt.bench.memory import peak_memory
from fedquilt.bench.plain import PLAIN
from fedquilt.bench.result import BASELINE, OURS, PLAIN_LOOP, Memory, Result, Row, rows_of
from fedquilt.bench.timing import ROUNDS_A_TURN, Side, take_turns
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import find_method, methods

# Called with a text that says what is measured, the number of steps done, and the total number of steps.
Watch = Callable[[str, int, int], None]


def chosen_methods(names: Sequence[str] | None) -> list[str]:
    """Return the methods to measure, with FedAvg, the baseline, first. None: all that take more than one round."""
    if names is None:
        names = [name for name, method in methods().items() if not method.single_round]
    for name in names:
        if find_method(name).single_round:
            raise FedquiltError(f"Method '{name}' takes one round only, so there is nothing to time; leave it out.")
    return list(dict.fromkeys([BASELINE, *names]))


def chosen_device(name: str) -> torch.device:
    """Return the device of that name; raise an error for one that cannot be timed."""
    device = pick_device(name)
    if device.type not in ("cpu", "cuda"):
        raise FedquiltError(f"A bench cannot run on '{name}'; use auto, cpu or cuda.")
    return device


def bench(
    cases: Sequence[LoadedCase],
    methods: Sequence[str],
    turns: int,
    device: torch.device,
    with_memory: bool,
    data: Path | None = None,
    watch: Watch = lambda what, done, total: None,
) -> Result:
    """Measure the methods on the cases.

    Args:
        cases, methods: what to measure; FedAvg must be among the methods.
        turns: how many turns each side has; device: the device to measure on.
        with_memory: measure peak memory too; data: the folder with graphs, for the processes that measure it.
        watch: called with the progress, never while something is timed.
    """
    keep_freed_memory()
    facts = about(device, torch.get_num_threads()) | {"turns": turns, "rounds_a_turn": ROUNDS_A_TURN}
    rows = [row for loaded in cases for row in time_case(loaded, methods, turns, device, watch)]
    peaks: list[Memory] = []
    left_out: list[str] = []
    wanted = [(loaded, method) for loaded in cases for method in methods] if with_memory else []
    for done, (loaded, method) in enumerate(wanted):
        watch("memory", done, len(wanted))
        try:
            peaks.append(peak_memory(loaded, method, device, data))
        except FedquiltError as error:
            left_out.append(f"The memory of {method} on {loaded.case} is left out: {error}")
    if wanted:
        watch("memory", len(wanted), len(wanted))
    return Result(facts, rows, peaks, left_out)


def time_case(loaded: LoadedCase, methods: Sequence[str], turns: int, device: torch.device, watch: Watch) -> list[Row]:
    """Time our methods, and the plain loops of those that have one, in turns on one case; return their rows."""
    name = str(loaded.case)
    watch(name, 0, turns)
    sides: dict[tuple[str, str], Side] = {}
    epochs: dict[str, int] = {}
    for method in methods:
        run = loaded.resolve(method)
        sides[OURS, method] = run.training(0)
        epochs[method] = run.config.epochs or 0
        if method in PLAIN:
            sides[PLAIN_LOOP, method] = PLAIN[method](run.clients(0), run.settings, device)
    return rows_of(name, take_turns(sides, turns, device, lambda done: watch(name, done, turns)), epochs)
