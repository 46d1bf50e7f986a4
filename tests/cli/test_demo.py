from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedquilt.cli.demo import in_words
from fedquilt.reports.gains import Gains

METHODS = ("majority", "local", "fedavg", "fedper", "fedpub", "quilt")


def test_the_demo_shows_what_each_client_gains_and_never_overwrites(call: Callable, here: Path) -> None:
    called = call("demo --rounds 2 --seeds 0 -q")
    assert called.status == 0, called.err
    assert all(word in called.out for word in (*METHODS, "What each client gains", "gain / lose", "Next:"))
    for name in ("gains.png", "gains.md", "convergence.png", "comparison.md"):
        assert (here / "demo" / name).is_file()
    before = {path: path.read_bytes() for path in (here / "demo").rglob("*") if path.is_file()}
    assert "demo-2/gains.png" in call("demo --rounds 1 --seeds 0 -q").out
    assert {path: path.read_bytes() for path in before} == before


def test_the_demo_refuses_what_it_cannot_use(refused: Callable) -> None:
    assert "whole numbers" in refused("demo --seeds x")


def test_clients_that_lose_are_named() -> None:
    gains = {"fedavg": np.array([[2.0, 1.0, 0.0]]), "quilt": np.array([[4.0, -1.0, 3.0]])}
    found = Gains("accuracy", np.ones(3), np.full((1, 3), 50.0), gains)
    assert in_words(found) == (
        "Joining changes the mean over clients by +1.0 (FedAvg) to +2.0 points (Quilt). "
        "Clients that lose on average: Quilt 1."
    )
    found = Gains("accuracy", np.ones(3), np.full((1, 3), 50.0), {"fedavg": gains["fedavg"]})
    assert in_words(found).endswith("No client loses.")
