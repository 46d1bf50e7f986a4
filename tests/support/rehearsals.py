"""What tests with real processes of Flower share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")

SIZES = (25, 14, 31)
USUAL = {
    "prepare": "none",  # as the clients in one process that they are compared with
    "sites": 3,
    "seed": 3,
    "dataset": "ragged",
    "partition": "disjoint",
    "timeout": 40.0,
    "tries": 5,
    "wait": 120.0,
}


def until(done: Callable[[], Any], seconds: float, why: str) -> Any:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = done()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"not in {seconds} seconds: {why}")
