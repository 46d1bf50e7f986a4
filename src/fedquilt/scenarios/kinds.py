"""The names of attacks and of aggregation rules. Nothing is imported here, so that `--help` can list them at once."""

from __future__ import annotations

from typing import Literal

AttackKind = Literal["same-value", "gaussian", "noise", "flip", "own-rows", "inflated", "stealth"]
AggregationRule = Literal["mean", "median", "trimmed", "clipped", "guarded"]
