"""The version of the computation: finished cells stay valid, and runs can be resumed, as long as it stays the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedquilt.tasks import NODE_CLASSIFICATION

COMPUTE_VERSION = 3
"""Raise it with every change that gives runs of several methods other numbers. Moves, renames and speed-ups do not count.

Where only one method's numbers change, raise that method's own (`Method.compute_version`): then the finished cells of all
others stay valid. Where only some kinds of its runs get other numbers, raise those (`Method.kind_versions`); where all runs of
a task do, the task's (`Task.compute_version`). `tests/runs/test_compute_version.py` compares a few numbers of every method with
recorded ones, so that no change goes unnoticed, and says which to raise. It also says how to record them again.
"""

PARTIAL = "partial"  # the kind of a run in which clients sit out
FIRST = 1  # the number of a method that has not been raised
# How a version is written into the keys of cells. Version 1 is written as the source hash that identified cells with the same
# numbers before versions were declared, so that those cells stay valid.
_WRITTEN = {1: "dfcb34e4767fbfee"}


def compute_version(method: str | None = None, kinds: Collection[str] = ()) -> str:
    """The version as it is written into the keys of cells: the common one, and a method's own where it was raised.

    Cells that were finished before methods had numbers of their own stay valid: `v3` for the first, `v3.2` for the second.
    `kinds` are those of the run (`run_kinds`).
    """
    common, own = _WRITTEN.get(COMPUTE_VERSION, f"v{COMPUTE_VERSION}"), method_version(method, kinds)
    return common if own == FIRST else f"{common}.{own}"


def method_version(method: str | None, kinds: Collection[str] = ()) -> int | str:
    """The number of a method's own computation; that of one which is not here is not known, and taken for the first.

    With those of the kinds of the run that were raised (`Method.kind_versions`): `1+partial2`.
    """
    from fedquilt.methods.base import methods  # imports torch, which a report of finished runs does not need

    known = methods().get(method) if method is not None else None
    if known is None:
        return FIRST
    numbers = {kind: known.kind_versions.get(kind, FIRST) + task_version(kind) - FIRST for kind in sorted(kinds)}
    raised = "".join(f"+{kind}{number}" for kind, number in numbers.items() if number > FIRST)
    return f"{known.compute_version}{raised}" if raised else known.compute_version


def task_version(name: str) -> int:
    """The number of a task's own computation (`Task.compute_version`); of what is no task that is here, the first."""
    from fedquilt.tasks.base import TASKS  # imports torch, too

    return TASKS.find(name).compute_version if name in TASKS else FIRST


def run_version(method: str | None = None, kinds: Collection[str] = ()) -> int | str:
    """The version as a search's tune.json has it: the common number, with the method's own where it was raised."""
    own = method_version(method, kinds)
    return COMPUTE_VERSION if own == FIRST else f"{COMPUTE_VERSION}.{own}"


def run_kinds(config: Mapping[str, Any]) -> set[str]:
    """The kinds of a run with these options, as config.json has them: `PARTIAL`, and the name of its task."""
    return ({PARTIAL} if is_partial(config) else set()) | {config.get("task") or NODE_CLASSIFICATION}


def is_partial(config: Mapping[str, Any]) -> bool:
    """Whether clients may sit rounds out, or lose an upload, in a run with these options.

    In a federation (it has an `order`) sites always may.
    """
    share, conditions = config.get("participation", 1.0), ("drop_out", "stragglers", "join_late", "leave")
    return "order" in config or share != 1 or any(config.get(name) for name in conditions)
