"""Rounds recorded once and replayed: on an accelerator a round is hundreds of small kernels, whose launches take longer than
their work. A recording (a CUDA graph) launches them all at once.

What is recorded is fixed: the same kernels on the same memory. So a round can be recorded where everyone takes part and
nothing depends on a look at the numbers; each kind of round (`Method.round_kind`) has its own recording. The first round of a
kind runs as usual, which also makes everything that is made once; the second is recorded and replayed, as are all after it. No
round is run twice. Where a recording fails, rounds run one by one as before, and `refused` says why.

Memory: the recordings of a training share one pool, as large as what a round needs beside the states.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class CudaGraphCache(Generic[T]):
    """Runs functions on one device; from its second time on, a kind of function is a recording that is replayed.

    A function must read and write memory that stays where it is, and give tensors that are overwritten by the next call.

    Attributes:
        refused: why nothing is recorded any more, or None.
    """

    def __init__(self) -> None:
        self.refused: str | None = None
        self._seen: set[Hashable] = set()
        self._recorded: dict[Hashable, tuple[torch.cuda.CUDAGraph, T]] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def ready(self, kind: Hashable) -> bool:
        """Whether this kind of function has a recording or can be recorded now."""
        return kind in self._recorded or (kind in self._seen and self.refused is None)

    def __call__(self, kind: Hashable, function: Callable[[], T]) -> T:
        """What the function gives, by running it, or by replaying what it did when it was recorded."""
        if kind not in self._recorded and (not self.ready(kind) or not self._record(kind, function)):
            self._seen.add(kind)
            return function()
        graph, given = self._recorded[kind]
        graph.replay()
        return given

    def _record(self, kind: Hashable, function: Callable[[], T]) -> bool:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                given = function()
        except RuntimeError as error:  # something in it needs a look at the numbers
            torch.cuda.synchronize()
            self.refused = str(_first(error)).strip().splitlines()[0]
            return False
        self._recorded[kind] = graph, given
        return True


def _first(error: BaseException) -> BaseException:
    """The error that came first: ending a recording that failed is one too."""
    while error.__context__ is not None:
        error = error.__context__
    return error
