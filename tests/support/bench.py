"""Made-up results of a bench, for tests that measure nothing."""

from __future__ import annotations

from typing import Any

from fedquilt.bench.result import OURS, PLAIN_LOOP, Memory, Result, rows_of

ABOUT: dict[str, Any] = {
    "date": "2025-03-01T12:00:00+00:00",
    "fedquilt": "0.1.0",
    "commit": "abc1234",
    "torch": "2.13.0",
    "device": "cpu",
    "device_name": "Some (R) CPU @ 3 GHz",
    "threads": 2,
}


def made_up(case: str = "cora/disjoint/10", slowed: float = 1.0, **about: Any) -> Result:
    """Three turns, the second on a machine twice as busy; Quilt `slowed` times as slow as it is."""
    loads = (1.0, 2.0, 1.1)
    ms_of = {(OURS, "fedavg"): 10.0, (PLAIN_LOOP, "fedavg"): 80.0, (OURS, "quilt"): 16.0 * slowed}
    times = {side: [ms * load for load in loads] for side, ms in ms_of.items()}
    rows = rows_of(case, times, {"fedavg": 1, "quilt": 3})
    return Result(ABOUT | about, rows, [Memory(case, "quilt", 350.0, 947.5)], ["pubmed is left out."])
