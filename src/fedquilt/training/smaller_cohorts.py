"""Train in smaller cohorts where memory runs out: a client is a cohort of one, so numbers differ by rounding only.

A step that ran out of memory may have changed some of the clients' states in place. So nothing of that training is used
again: the next one, in cohorts of half the size, starts from the newest checkpoint in the run's folder, or from round 0.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from fedquilt.common.machine_limits import Limit, find_limit
from fedquilt.devices.allocator import return_freed_memory
from fedquilt.errors import MachineLimitError
from fedquilt.training.round_store import Record

_log = logging.getLogger(__name__)
T = TypeVar("T")


def with_smaller_cohorts(act: Callable[[int | None], T], size: int | None, largest: int) -> tuple[T, int | None]:
    """Call `act` with a cohort size, and again with half of it as long as memory runs out; its result, and the size that did.

    Args:
        act: trains with at most so many clients at once; None: all.
        size: the size to begin with.
        largest: the number of clients that are computed at once without a limit.
    """
    while True:
        limit = None
        try:
            return act(size), size
        except MachineLimitError:
            raise  # it says already what is too large, such as the server's part, which cohorts do not change
        except Exception as error:
            limit = find_limit(error)
            if limit is None or limit.kind not in ("memory", "accelerator"):
                raise
            now = min(size or largest, largest)
            if now <= 1:
                raise MachineLimitError(_gave_up(limit)) from error
        # Here the error is gone, and with it the frames that hold the tensors of the training that failed.
        size = (now + 1) // 2
        _log.warning("%s with %s at once; training goes on in cohorts of %d.", limit.what, _clients(now), size)
        free_memory()


def reporting_once(on_round: Callable[[Record], None] | None) -> Callable[[Record], None] | None:
    """`on_round` without the records of rounds that it was called with before: a training that starts again repeats them."""
    if on_round is None:
        return None
    told, tell = set[Any](), on_round

    def report(record: Record) -> None:
        if record["round"] not in told:
            told.add(record["round"])
            tell(record)

    return report


def free_memory() -> None:
    """Free what nothing refers to any more, on this machine and on its accelerators."""
    gc.collect()  # trainings and their CUDA graphs refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return_freed_memory()


def _clients(count: int) -> str:
    return f"{count} clients" if count > 1 else "one client"


def _gave_up(limit: Limit) -> str:
    where = ", or --device cpu" if limit.kind == "accelerator" else ""
    return f"{limit.what} even with one client at a time; use a smaller model or graph, or a machine with more memory{where}."
