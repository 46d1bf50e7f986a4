"""How much memory cells need, so that no more of them run at the same time than fit.

What a cell needs is known from finished cells of its method, graph and number of clients on this kind of device. Else it is at
most what a formula says; where as many might not fit beside each other, a trial estimates it (`training.memory_estimate`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fedquilt.devices.room import room_of
from fedquilt.methods.settings import resolve_settings
from fedquilt.runs.compute_version import is_partial
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.cell_times import OVERLAP
from fedquilt.studies.cells import Cell
from fedquilt.studies.digests import graph_size
from fedquilt.studies.store import StoredCell
from fedquilt.training.engines.registry import EngineOptions
from fedquilt.training.memory_estimate import estimate_memory

PROCESS = 6 * 10**8  # bytes of a worker on the host, before any cell
CONTEXT = 5 * 10**8  # bytes of a process on an accelerator: its context and its kernels
CUDA_PROCESS = 3 * 10**9  # bytes of a worker on the host that uses an accelerator
_SPARE = 0.9  # the share of the free memory that cells may take together
_MARGIN = 1.15  # how much more than in another seed a cell may need
Kind = tuple[str, str, str, str]


@dataclass(frozen=True)
class Need:
    """Bytes of memory: of the host, and of the accelerator where there is one."""

    host: float
    device: float = 0.0

    def __add__(self, other: Need) -> Need:
        return Need(self.host + other.host, self.device + other.device)

    def within(self, most: Need) -> bool:
        """Whether it fits into `most`."""
        return self.host <= most.host and self.device <= most.device


@dataclass
class MemoryBudget:
    """Which cells fit beside each other.

    Attributes:
        device: where cells are computed. jobs: how many run at a time at most.
        free: what all cells together may take.
        known: by kind of cell, what it needs.
        alone: keys of cells that ran out of memory beside others, so that they run with nothing beside them.
    """

    device: torch.device
    jobs: int
    free: Need
    known: dict[Kind, Need] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)

    @classmethod
    def here(cls, device: torch.device, jobs: int, stored: Iterable[StoredCell] = ()) -> MemoryBudget:
        """That of this machine, with what finished cells needed."""
        host, own = room_of(torch.device("cpu")), room_of(device) if device.type == "cuda" else None
        free = Need(
            math.inf if host is None else _SPARE * host.free,
            math.inf if own is None else _SPARE * own.free,
        )
        budget = cls(device, jobs, free)
        for one in stored:
            budget._learn(one.facts)
        return budget

    def fits(self, cell: Cell, running: Sequence[Cell]) -> bool:
        """Whether a cell may start beside those that run; it always may where none does."""
        if not running:
            return True
        if self.alone and any(one.key in self.alone for one in (cell, *running)):
            return False
        return sum(map(self.need, running), self.need(cell)).within(self.free)

    def need(self, cell: Cell) -> Need:
        """What a cell needs, at most as far as that is known."""
        kind = _kind(vars(cell.config))
        if kind not in self.known:
            most = self._need(at_most(cell.config))
            each = Need(self.free.host / self.jobs, self.free.device / self.jobs)
            self.known[kind] = most if most.within(each) else self._estimated(cell, most)
        return self.known[kind]

    def _estimated(self, cell: Cell, most: Need) -> Need:
        """The estimate from a trial; what the formula says where a trial is not possible."""
        try:
            found = self._need(_trial(cell, self.device))
        except Exception:  # what is wrong with the cell is told when it runs
            return most
        return Need(min(found.host, most.host), min(found.device, most.device))

    def _need(self, training: float) -> Need:
        """What a process needs whose training takes so many bytes."""
        if self.device.type == "cuda":
            return Need(CUDA_PROCESS, CONTEXT + training)
        return Need(PROCESS + training)

    def _learn(self, facts: Mapping[str, object]) -> None:
        config, memory = facts.get("config"), facts.get("memory")
        if not isinstance(config, dict) or not isinstance(memory, dict):
            return
        host, own = memory.get("host"), memory.get("device")
        on_device = isinstance(own, int)
        if on_device != (self.device.type == "cuda") or not (on_device or isinstance(host, int)):
            return
        on_host = _MARGIN * host if isinstance(host, int) else CUDA_PROCESS
        need = Need(on_host, CONTEXT + _MARGIN * own if isinstance(own, int) else 0.0)
        before = self.known.get(kind := _kind(config), need)
        self.known[kind] = Need(max(need.host, before.host), max(need.device, before.device))


def _kind(config: Mapping[str, object]) -> Kind:
    names = ("method", "dataset", "clients", "partition")
    method, dataset, clients, partition = (str(config.get(name)) for name in names)
    return method, dataset, clients, partition


def _trial(cell: Cell, device: torch.device) -> int:
    """Bytes that a cell's training needs, from a trial with few small clients on the CPU."""
    config = cell.config.model_copy(update={"device": "cpu"})
    resolved = ResolvedRun(config)
    context = resolved.context(cell.seed)
    method = resolved.method(*resolve_settings(resolved.method, context, config.settings, context.epochs))
    clients = resolved.clients(cell.seed)[: context.clients]
    options = EngineOptions(device=device, cohort_size=config.cohort_size)
    partial = is_partial(config.model_dump())
    return estimate_memory(method, clients, options, config.participation, sits_out=partial).total


def at_most(config: RunConfig) -> float:
    """Bytes that a training hardly needs, by the sizes of its graph and of its clients' models.

    Weights of two layers from features to hidden units, with gradients, moments, masks and copies, eight times; features and
    what is made of them, dense for methods that filter them (FedSSA: one for each order); activations of each node and edge.
    """
    size = graph_size(config.dataset, config.data, config.clients_from)
    if size is None:
        return 0.0
    clients, settings = config.clients or 10, config.settings
    hidden = settings.get("hidden", 128)
    rows = OVERLAP if config.partition == "overlapping" else 1.0
    weights = 8.0 * clients * 4 * size.features * max(128, hidden if isinstance(hidden, int) else 0) * 2
    filters = (settings.get("order", 10) if isinstance(settings.get("order", 10), int) else 10) + 1
    dense = 4.0 * size.nodes * size.features * (2 * filters if config.method == "fedssa" else 2)
    return weights + rows * (25.0 * size.stored + dense + 4000.0 * (size.nodes + size.edges)) + 400.0 * clients**2
