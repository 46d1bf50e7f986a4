"""A worker process: some of the clients in an in-process engine, whose messages are sent as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedquilt.cohort.client import Client
from fedquilt.common.registry import load_plugins
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.devices.device import Precision
from fedquilt.messages.message import Message, Sparse, Value, dense
from fedquilt.methods.base import Method, RunContext
from fedquilt.training.engines.base import EVALUATION_FIELDS, Evaluation
from fedquilt.training.engines.in_process import InProcess

# A message or a state as Ray sends it: each tensor as an array, and whether it is `Sparse`.
Packed = dict[str, tuple[np.ndarray, bool]]
# The fields of `Evaluation` by name.
Metrics = dict[str, np.ndarray]


class RayWorker:
    """The Ray actor. Its methods are those of `Engine`, with packed messages."""

    engine: InProcess

    def hello(self) -> None:
        """Return as soon as the process runs."""

    def load(self, plugins: Sequence[str]) -> None:
        """Load the plug-ins of the process that asks: what it sends next may be of their classes."""
        load_plugins(plugins, named=True)

    def open(
        self,
        method: type[Method],
        settings: Any,
        context: RunContext,
        clients: Sequence[Client],
        device: str,
        cohort_size: int | None,
        precision: Precision,
        threads: int,
    ) -> None:
        """Build the engine. It is called before anything but `hello`."""
        keep_freed_memory()
        torch.set_num_threads(threads)
        self.engine = InProcess(method(settings, context), clients, device, cohort_size, precision)

    def round(
        self,
        round: int,
        participants: list[int],
        evaluate: bool,
        own: Packed,
        shared: Packed,
        efforts: Mapping[int, float],
    ) -> tuple[Packed, Metrics | None]:
        """Train its participants: their uploads and, with `evaluate`, the metrics of all its clients."""
        down = self._down(own, shared)
        self.engine.efforts = efforts
        uploads, evaluation = self.engine.round(round, torch.tensor(participants), down, evaluate)
        return pack(uploads), None if evaluation is None else as_arrays(evaluation)

    def settle(self, own: Packed, shared: Packed) -> Metrics:
        """As `Engine.settle`."""
        return as_arrays(self.engine.settle(self._down(own, shared)))

    def evaluate(self) -> Metrics:
        """As `Engine.evaluate`."""
        return as_arrays(self.engine.evaluate())

    def metrics(self) -> Metrics:
        """The metrics of the last evaluation; nothing is computed."""
        return {name: values.cpu().numpy() for name, values in self.engine.metrics.items()}

    def predictions(self) -> list[np.ndarray]:
        """As `Engine.predictions`."""
        return [each.numpy() for each in self.engine.predictions()]

    def personal(self) -> Packed:
        """As `Engine.personal`."""
        return pack(self.engine.personal())

    def forget(self) -> None:
        """As `Engine.forget`."""
        self.engine.forget()

    def state(self) -> Packed:
        """As `Engine.state`."""
        return pack(self.engine.state())

    def restore(self, state: Packed) -> None:
        """As `Engine.restore`."""
        self.engine.restore({name: dense(value) for name, value in unpack(state, self.engine.device).items()})

    def _down(self, own: Packed, shared: Packed) -> Message:
        return unpack(own, self.engine.device) | unpack(shared, self.engine.device)


def pack(message: Mapping[str, Value]) -> Packed:
    """A message or a state as arrays, which Ray stores without a copy."""
    return {name: (dense(v).detach().cpu().numpy(), isinstance(v, Sparse)) for name, v in message.items()}


def unpack(packed: Packed, device: torch.device) -> Message:
    """The inverse of `pack`, in new memory: arrays from Ray are read-only."""
    tensors = {name: torch.tensor(array, device=device) for name, (array, _) in packed.items()}
    return {name: Sparse(t) if packed[name][1] else t for name, t in tensors.items()}


def as_arrays(evaluation: Evaluation) -> Metrics:
    """The fields of an evaluation as arrays."""
    return {name: getattr(evaluation, name).cpu().numpy() for name in EVALUATION_FIELDS}
