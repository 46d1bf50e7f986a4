"""CUDA graphs of rounds.

A round is hundreds of small kernels, whose launches take longer than their work. A CUDA graph launches them all at once.

A CUDA graph is fixed: the same kernels on the same memory. So a round can be captured where all clients take part and
no step depends on a value that the host reads. Rounds with equal keys share one CUDA graph. The first round with a key
runs eagerly, which also computes everything that is computed once; the second is captured and replayed, and later ones
are replayed. No round runs twice. Where a capture fails, rounds run eagerly as before, and `failure` says why.

Two settings make captures reliable:

- *Garbage collection is off during a capture.* The collector may destroy CUDA graphs of an earlier training, and
  destroying one is not permitted while any is captured: CUDA prints "operation not permitted when stream is capturing"
  and the capture fails.
- *Captures are thread-local* (`CAPTURE_ERROR_MODE`). In CUDA's "global" mode a call from any thread, such as another
  training in the same process, makes the capture fail. In "thread_local" mode only the capturing thread's calls do. A
  read of a value by autograd's thread still fails, because waiting for a stream that is being captured is an error in
  every mode.

Memory: the CUDA graphs of a training share one pool, as large as the memory of one round without the states.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
CAPTURE_ERROR_MODE = "thread_local"


class CudaGraphCache(Generic[T]):
    """Runs functions by key. The second call with a key captures a CUDA graph, which that call and all later ones replay.

    A function must read and write memory with fixed addresses. The tensors it returns are overwritten by the next call.

    Attributes:
        failure: why nothing is captured any more, or None.
    """

    def __init__(self) -> None:
        self.failure: str | None = None
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, T]] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def is_ready(self, key: Hashable) -> bool:
        """Whether a call with this key replays a CUDA graph or tries to capture one."""
        return key in self._graphs or (key in self._seen and self.failure is None)

    def __call__(self, key: Hashable, function: Callable[[], T]) -> T:
        """Run the function, or replay the CUDA graph of its key, and return the function's result."""
        if key not in self._graphs and (not self.is_ready(key) or not self._capture(key, function)):
            self._seen.add(key)
            return function()
        graph, result = self._graphs[key]
        graph.replay()
        return result

    def _capture(self, key: Hashable, function: Callable[[], T]) -> bool:
        """Capture the function without executing it; return whether that worked."""
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                without_garbage_collection(),
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode=CAPTURE_ERROR_MODE),
            ):
                result = function()
        except RuntimeError as error:  # such as a value that the host reads
            torch.cuda.synchronize()
            self.failure = str(_first(error)).strip().splitlines()[0]
            return False
        self._graphs[key] = graph, result
        return True


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch the cyclic garbage collector off for the block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _first(error: BaseException) -> BaseException:
    """Return the first error of a chain: ending a failed capture raises another one, which is less informative."""
    while error.__context__ is not None:
        error = error.__context__
    return error
