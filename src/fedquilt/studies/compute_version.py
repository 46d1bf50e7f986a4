"""The version of what computes results: finished cells of a study are valid as long as it stays the same."""

from __future__ import annotations

COMPUTE_VERSION = 1
"""Raise it with every change after which some run gives other numbers; moves, renames and speed do not count.

`tests/studies/test_compute_version.py` holds a few numbers of every method against recorded ones, so that a change of numbers
does not go unnoticed. It also says how to record them anew.
"""

# How a version is written into the keys of cells. Version 1 is written as the hash of the source files by which cells of the
# same numbers were known before versions were declared, so that those cells stay valid.
_WRITTEN = {1: "dfcb34e4767fbfee"}


def compute_version() -> str:
    """The version as keys of cells have it."""
    return _WRITTEN.get(COMPUTE_VERSION, f"v{COMPUTE_VERSION}")
