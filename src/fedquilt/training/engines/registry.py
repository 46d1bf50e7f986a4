"""Engines by name. A new engine is one file in this folder, named as the engine, whose factory is registered:

@register_engine("my_engine")
def make(method, clients, options): ...
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fedquilt.cohort.client import Client
from fedquilt.devices.device import Precision
from fedquilt.errors import unknown
from fedquilt.methods.base import Method
from fedquilt.training.engines.base import Engine

IN_PROCESS, RAY_WORKERS = "in_process", "ray_workers"


@dataclass(frozen=True)
class EngineOptions:
    """What a run says about its engine.

    Attributes:
        device: where the server and, in process, the clients compute.
        cohort_size: the largest number of clients computed together; None: all.
        precision: of dense products.
        workers: the number of worker processes; None: all clients run in this process.
        threads: of each worker process; None: its share of the cores.
    """

    device: torch.device
    cohort_size: int | None = None
    precision: Precision = "float32"
    workers: int | None = None
    threads: int | None = None

    @property
    def engine(self) -> str:
        """The name of the engine that these options ask for."""
        return IN_PROCESS if self.workers is None else RAY_WORKERS


EngineFactory = Callable[[Method, Sequence[Client], EngineOptions], Engine]
_FACTORIES: dict[str, EngineFactory] = {}


def register_engine(name: str) -> Callable[[EngineFactory], EngineFactory]:
    """Register the decorated function as the factory of the engine `name`."""

    def decorate(factory: EngineFactory) -> EngineFactory:
        _FACTORIES[name] = factory
        return factory

    return decorate


def find_engine(name: str) -> EngineFactory:
    """The factory of the engine `name`; its module in this folder is imported when first asked for."""
    module = f"{__package__}.{name}"
    if name not in _FACTORIES and importlib.util.find_spec(module) is not None:
        importlib.import_module(module)
    if name not in _FACTORIES:
        raise unknown("engine", name, {*_FACTORIES, IN_PROCESS, RAY_WORKERS})
    return _FACTORIES[name]


def make_engine(method: Method, clients: Sequence[Client], options: EngineOptions, name: str | None = None) -> Engine:
    """The engine called `name`, or the one that the options ask for, with these clients."""
    return find_engine(name or options.engine)(method, clients, options)
