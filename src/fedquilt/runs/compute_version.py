"""The version of the computation: finished cells stay valid, and runs can be resumed, as long as it stays the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COMPUTE_VERSION = 3
"""Raise it with every change that gives runs of several methods other numbers. Moves, renames and speed-ups do not count.

Where only one method's numbers change, raise that method's own (`Method.compute_version`): then the finished cells of all
others stay valid. Where its numbers change only if clients sit out, raise `Method.partial_version`: then its other cells stay
valid too. `tests/runs/test_compute_version.py` compares a few numbers of every method with recorded ones, so that no
change goes unnoticed, and says which to raise. It also says how to record them again.
"""

FIRST = 1  # the number of a method that has not been raised
# How a version is written into the keys of cells. Version 1 is written as the source hash that identified cells with the same
# numbers before versions were declared, so that those cells stay valid.
_WRITTEN = {1: "dfcb34e4767fbfee"}


def compute_version(method: str | None = None, partial: bool = False) -> str:
    """The version as it is written into the keys of cells: the common one, and a method's own where it was raised.

    Cells that were finished before methods had numbers of their own stay valid: `v3` for the first, `v3.2` for the second.
    """
    common, own = _WRITTEN.get(COMPUTE_VERSION, f"v{COMPUTE_VERSION}"), method_version(method, partial)
    return common if own == FIRST else f"{common}.{own}"


def method_version(method: str | None, partial: bool = False) -> int | str:
    """The number of a method's own computation; that of one which is not here is not known, and taken for the first.

    Where clients sit out (`partial`), with that of `Method.partial_version` if it was raised: `1+2`.
    """
    from fedquilt.methods.base import methods  # imports torch, which a report of finished runs does not need

    known = methods().get(method) if method is not None else None
    if known is None:
        return FIRST
    if not partial or known.partial_version == FIRST:
        return known.compute_version
    return f"{known.compute_version}+{known.partial_version}"


def run_version(method: str | None = None, partial: bool = False) -> int | str:
    """The version as a search's tune.json has it: the common number, with the method's own where it was raised."""
    own = method_version(method, partial)
    return COMPUTE_VERSION if own == FIRST else f"{COMPUTE_VERSION}.{own}"


def is_partial(config: Mapping[str, Any]) -> bool:
    """Whether clients may sit rounds out, or lose an upload, in a run with these options, as config.json has them.

    In a federation (it has an `order`) sites always may.
    """
    share, conditions = config.get("participation", 1.0), ("drop_out", "stragglers", "join_late", "leave")
    return "order" in config or share != 1 or any(config.get(name) for name in conditions)
