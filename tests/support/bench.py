"""Made-up results, so that what is done with figures can be tested without measuring any."""

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


def made_up(cell: str = "cora/disjoint/10", slowed: float = 1.0, **about: Any) -> Result:
    """Three turns, the second on a machine twice as busy; Quilt `slowed` times as slow as it is."""
    moods = (1.0, 2.0, 1.1)
    pace = {(OURS, "fedavg"): 10.0, (PLAIN_LOOP, "fedavg"): 80.0, (OURS, "quilt"): 16.0 * slowed}
    times = {side: [ms * mood for mood in moods] for side, ms in pace.items()}
    rows = rows_of(cell, times, {"fedavg": 1, "quilt": 3})
    return Result(ABOUT | about, rows, [Memory(cell, "quilt", 350.0, 947.5)], ["pubmed is left out."])
