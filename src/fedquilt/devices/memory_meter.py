"""Count the memory that a piece of code holds, in PyTorch's tensors and NumPy's arrays, while it runs on the CPU.

Unlike the memory of the process, these numbers have no noise: they are the same in every process and do not depend on what was
freed before. Memory inside of operators is not seen.
"""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class MemoryMeter(TorchDispatchMode):
    """Counts what is allocated inside a `with` block. Only on the CPU, and in the calling thread.

    Attributes:
        live: bytes that the block allocated and that are not freed yet.
        peak: the most of them at any time.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled inside; to say so would import PyTorch's compiler, which takes seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._tensors = 0
        self._known: set[int] = set()
        self._before = 0
        self._arrays = 0

    @property
    def live(self) -> int:
        """Bytes that were allocated inside the block and are in use now."""
        return self._tensors + self._arrays

    def __enter__(self) -> MemoryMeter:
        self._traces = not tracemalloc.is_tracing()
        if self._traces:
            tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0] - self._arrays
        tracemalloc.reset_peak()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sample()
        super().__exit__(kind, error, trace)
        if self._traces:
            tracemalloc.stop()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator, and count the storages that it made."""
        for tensor in _tensors((args, kwargs)):
            self._note(tensor, size=0)  # made elsewhere, such as by NumPy, which counts it
        self._sample()
        out = func(*args, **(kwargs or {}))
        for tensor in _tensors(out):
            self._note(tensor)
        self._sample()
        return out

    def _note(self, tensor: Tensor, size: int | None = None) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        self._known.add(key)
        count = storage.nbytes() if size is None else size
        self._tensors += count
        weakref.finalize(storage, self._forget, key, count)

    def _forget(self, key: int, count: int) -> None:
        self._known.discard(key)
        self._tensors -= count

    def _sample(self) -> None:
        now, most = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        self.peak = max(self.peak, self._tensors + most - self._before)
        self._arrays = now - self._before


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.layout == torch.strided:
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
