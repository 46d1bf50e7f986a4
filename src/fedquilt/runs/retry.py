"""A second try of a seed whose training diverged: from the start, with smaller steps.

What usually helps is a tenth of every learning rate, and gradients cut to a norm of 1 (the setting `clip`). A run must never
silently be something else than what was asked for: the second try is logged as a warning, and the seed's summary, result.json
and every table say `retried` with the settings it was trained with. Those are kept in seed-<s>/retry.json, so that a resume
goes on with them.

There is no second try where uploads are noised: it would spend the privacy budget again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from fedquilt.common.type_words import short_number
from fedquilt.runs.config import RunConfig

FACTOR = 0.1  # of every learning rate
CLIP = 1.0  # the norm that gradients are cut to


@dataclass(frozen=True)
class Retry:
    """A second try: the settings that differ from the run's, and why the first one ended."""

    changed: Mapping[str, float]
    why: str


def may_retry(config: RunConfig, settings: Any) -> bool:
    """Whether a run tries a seed again whose training diverged."""
    return config.on_divergence == "retry" and config.dp_clip is None and bool(smaller_steps(settings))


def smaller_steps(settings: Any) -> dict[str, float]:
    """The settings of the second try that differ from `settings`; empty where the method has no learning rate."""
    if not is_dataclass(settings):
        return {}
    names = [field.name for field in fields(settings)]
    rates = [name for name in names if name == "lr" or name.endswith("_lr")]
    changed = {name: FACTOR * getattr(settings, name) for name in rates}
    if changed and "clip" in names:
        changed["clip"] = min(CLIP, vars(settings)["clip"] or CLIP)
    return changed


def in_words(changed: Mapping[str, float]) -> str:
    """The changed settings as a user types them: "lr=0.001 clip=1"."""
    return " ".join(f"{name}={short_number(float(value))}" for name, value in changed.items())
