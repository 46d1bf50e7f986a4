"""CUDA graphs: what is captured, when, and what happens where it fails. Stand-ins take the place of CUDA."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from fedquilt.devices.cuda_graph import CudaGraphCache

# -- the cache -------------------------------------------------------------------------------------------


class Graph:
    """A CUDA graph of nothing: it counts how often it is replayed."""

    replays = 0

    def replay(self) -> None:
        Graph.replays += 1


class Capture:
    """Stands for `torch.cuda.graph`; a message in `failures` makes the next capture fail."""

    failures: list[str]

    def __init__(self, graph: Graph, pool: object, capture_error_mode: str) -> None:
        assert (pool, capture_error_mode) == ("pool", "thread_local")

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, *rest: object) -> None:
        if Capture.failures:
            raise RuntimeError(Capture.failures.pop(0))


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> CudaGraphCache[Any]:
    Graph.replays, Capture.failures = 0, []
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return CudaGraphCache()


class Counter:
    def __init__(self, fails: str | None = None) -> None:
        self.calls, self.fails = 0, fails

    def __call__(self) -> int:
        self.calls += 1
        if self.fails and self.calls == 2:
            raise RuntimeError(self.fails)
        return self.calls


def test_the_first_call_of_a_key_runs_the_second_is_captured_and_all_are_replayed(cache: CudaGraphCache[Any]) -> None:
    count = Counter()
    assert not cache.is_ready("a")
    assert cache("a", count) == 1
    assert (Graph.replays, cache.is_ready("a")) == (0, True)
    assert cache("a", count) == 2  # captured and replayed: a capture executes nothing
    assert (count.calls, Graph.replays) == (2, 1)
    assert [cache("a", count) for _ in range(3)] == [2, 2, 2]
    assert (count.calls, Graph.replays) == (2, 4)
    assert cache.failure is None


def test_each_key_has_its_own_graph(cache: CudaGraphCache[Any]) -> None:
    one, two = Counter(), Counter()
    for _ in range(4):
        cache("one", one)
        cache(("two", 2), two)
    assert (one.calls, two.calls, Graph.replays) == (2, 2, 6)
    assert not cache.is_ready("three")


@pytest.mark.parametrize("where", ["inside", "at the end"])
def test_what_cannot_be_captured_runs_and_says_why(cache: CudaGraphCache[Any], where: str) -> None:
    said = "operation not permitted when stream is capturing\nCompile with more to know more\n"
    fine, count = Counter(), Counter(said if where == "inside" else None)
    for _ in range(2):
        cache("fine", fine)
    if where == "at the end":
        Capture.failures = [said]
    assert cache("a", count) == 1
    assert cache("a", count) == 3  # the second call was the failed capture
    assert cache.failure == "operation not permitted when stream is capturing"
    assert not cache.is_ready("a")
    assert cache("a", count) == 4  # from now on eagerly
    assert cache("fine", fine) == 2  # graphs that were captured stay
    assert (fine.calls, cache.is_ready("fine")) == (2, True)
    new = Counter()
    assert [cache("new", new) for _ in range(3)] == [1, 2, 3]  # and nothing else is tried
    assert not cache.is_ready("new")


def test_the_first_error_is_reported(cache: CudaGraphCache[Any]) -> None:
    """Ending a failed capture fails as well, and says less."""
    count = Counter("a look at the numbers")
    cache("a", count)
    Capture.failures = ["the capture was invalidated"]
    assert cache("a", count) == 3
    assert cache.failure == "a look at the numbers"


def test_errors_that_are_not_about_capturing_are_not_hidden(cache: CudaGraphCache[Any]) -> None:
    def wrong() -> None:
        raise ValueError("a defect")

    cache("a", Counter())
    with pytest.raises(ValueError, match="a defect"):
        cache("a", wrong)


def test_the_garbage_collector_is_off_during_a_capture_only(cache: CudaGraphCache[Any]) -> None:
    """It could destroy the CUDA graphs of an earlier training, which is not permitted during a capture."""
    seen: list[bool] = []

    def function() -> None:
        seen.append(gc.isenabled())
        if len(seen) == 4:
            raise RuntimeError("a value was read")

    for key in ("a", "a", "b", "b"):
        cache(key, function)
        assert gc.isenabled()
    assert seen == [True, False, True, False, True]  # the failed capture is followed by an eager call
    gc.disable()
    try:
        CudaGraphCache.__init__(cache)
        for _ in range(2):
            cache("c", function)
            assert not gc.isenabled()  # left as it was
    finally:
        gc.enable()
