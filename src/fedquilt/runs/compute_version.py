"""The version of the computation: finished cells stay valid, and runs can be resumed, as long as it stays the same."""

from __future__ import annotations

COMPUTE_VERSION = 3
"""Raise it with every change that gives some run other numbers. Moves, renames and speed-ups do not count.

`tests/runs/test_compute_version.py` compares a few numbers of every method with recorded ones, so that no change of
numbers goes unnoticed. It also says how to record them again.
"""

# How a version is written into the keys of cells. Version 1 is written as the source hash that identified cells with the same
# numbers before versions were declared, so that those cells stay valid.
_WRITTEN = {1: "dfcb34e4767fbfee"}


def compute_version() -> str:
    """The version as it is written into the keys of cells."""
    return _WRITTEN.get(COMPUTE_VERSION, f"v{COMPUTE_VERSION}")
