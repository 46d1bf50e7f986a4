from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def test_the_demo_compares_four_methods_and_never_overwrites(call: Callable, here: Path) -> None:
    called = call("demo --rounds 2 --seeds 0 -q")
    assert called.status == 0, called.err
    assert all(method in called.out for method in ("majority", "local", "fedavg", "fedpub", "Next:"))
    for name in ("convergence.png", "similarity.png", "comparison.md"):
        assert (here / "demo" / name).is_file()
    before = {path: path.read_bytes() for path in (here / "demo").rglob("*") if path.is_file()}
    assert "demo-2/similarity.png" in call("demo --rounds 2 -q").out
    assert {path: path.read_bytes() for path in before} == before


def test_the_demo_refuses_what_it_cannot_use(refused: Callable) -> None:
    assert "whole numbers" in refused("demo --seeds x")
