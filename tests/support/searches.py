"""Small searches, and what is the same in two of them."""

from __future__ import annotations

from typing import Any

from fedquilt.tuning.outcome import Tuned
from fedquilt.tuning.search import tune
from support.small_runs import own_graph

SMALL: dict[str, Any] = {"clients": 3, "rounds": 4, "device": "cpu", "settings": {"hidden": 8}}


def search(trials: int = 8, method: str = "fedavg", **options: Any) -> Tuned:
    return tune(method, options.pop("dataset", own_graph(masks=True)), trials=trials, **{**SMALL, **options})


def told(tuned: Tuned) -> list[tuple[Any, ...]]:
    """All that a search found out, but for the time it took."""
    trials = [(t.number, t.settings, t.val, t.state, t.why, t.rounds) for t in tuned.trials]
    return [*trials, (tuned.best_settings, tuned.best_val, tuned.default_val, tuned.importances)]
