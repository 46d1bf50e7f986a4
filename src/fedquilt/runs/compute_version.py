"""The version of the computation: finished cells stay valid, and runs can be resumed, as long as it stays the same."""

from __future__ import annotations

COMPUTE_VERSION = 3
"""Raise it with every change that gives runs of several methods other numbers. Moves, renames and speed-ups do not count.

Where only one method's numbers change, raise that method's own (`Method.compute_version`): then the finished cells of all
others stay valid. `tests/runs/test_compute_version.py` compares a few numbers of every method with recorded ones, so that no
change goes unnoticed, and says which to raise. It also says how to record them again.
"""

FIRST = 1  # the number of a method that has not been raised
# How a version is written into the keys of cells. Version 1 is written as the source hash that identified cells with the same
# numbers before versions were declared, so that those cells stay valid.
_WRITTEN = {1: "dfcb34e4767fbfee"}


def compute_version(method: str | None = None) -> str:
    """The version as it is written into the keys of cells: the common one, and a method's own where it was raised.

    Cells that were finished before methods had numbers of their own stay valid: `v3` for the first, `v3.2` for the second.
    """
    common, own = _WRITTEN.get(COMPUTE_VERSION, f"v{COMPUTE_VERSION}"), method_version(method)
    return common if own == FIRST else f"{common}.{own}"


def method_version(method: str | None) -> int:
    """The number of a method's own computation; that of one which is not here is not known, and taken for the first."""
    from fedquilt.methods.base import methods  # imports torch, which a report of finished runs does not need

    known = methods().get(method) if method is not None else None
    return FIRST if known is None else known.compute_version


def run_version(method: str | None = None) -> int | str:
    """The version as the seal of a run has it: the common number, with the method's own where it was raised."""
    own = method_version(method)
    return COMPUTE_VERSION if own == FIRST else f"{COMPUTE_VERSION}.{own}"
