"""The names of attacks, kinds of noise and aggregation rules. Nothing is imported here, so that `--help` can list them."""

from __future__ import annotations

from typing import Literal

AttackKind = Literal[
    "same-value", "gaussian", "noise", "flip", "scaled", "random", "counts", "labels", "own-rows", "inflated", "stealth"
]
LabelNoiseKind = Literal["uniform", "pair"]
AggregationRule = Literal["mean", "median", "trimmed", "clipped", "guarded"]
