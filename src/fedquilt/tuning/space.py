"""The space of a search: the settings that are searched, and their possible values.

A space maps a setting's name to a `Choice` (a list of values) or a `Range` (all values between two). A method's default space
follows from the names in `Method.searched` and from rules by a setting's name, type, bounds and default. A user gives a space
as a YAML file:

    lr: {low: 0.001, high: 0.1, log: true}
    hidden: [64, 128]
    epochs: {low: 1, high: 3}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from fedquilt.errors import FedquiltError, unknown
from fedquilt.methods.base import Method
from fedquilt.runs.read_config import read_config

DECAYS = (0.0, 1e-6, 1e-5, 1e-4, 5e-4)
WIDTHS = (64, 128, 256)
MOST_DROPOUT = 0.8
AROUND = 10  # a positive number is searched between a tenth and ten times its default


@dataclass(frozen=True)
class Choice:
    """A list of values to choose from."""

    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether the value is in it."""
        return value in self.values

    def plain(self) -> list[Any]:
        """In the form of a space file."""
        return list(self.values)


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`, inclusive; an integer if both are integers. `log`: drawn uniformly in its logarithm."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether it contains integers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Whether the value is in it."""
        return isinstance(value, int | float) and self.low <= value <= self.high

    def plain(self) -> dict[str, Any]:
        """In the form of a space file."""
        return {"low": self.low, "high": self.high} | ({"log": True} if self.log else {})


Space = dict[str, Choice | Range]


def usual_space(method: type[Method], defaults: Mapping[str, Any]) -> Space:
    """Return the default space of a method. It contains every default value.

    Args:
        method: the method; `Method.searched` names the settings.
        defaults: the method's settings in this run.
    """
    hints = get_type_hints(method.Settings, include_extras=True)
    space: Space = {}
    for name in (name for name in method.searched if name in hints):
        part = rule(name, hints[name], defaults[name])
        if part is not None:
            space[name] = part
    return space


def rule(name: str, kind: Any, default: Any) -> Choice | Range | None:
    """Return the values to search for a setting of this name, type and default; None if it is not searched."""
    base, least, most = _unpacked(kind)
    if name == "weight_decay":
        return Choice(tuple(sorted({*DECAYS, default})))
    if name == "hidden":
        return Choice(tuple(sorted({*WIDTHS, default})))
    if name.endswith("dropout"):
        return Range(0.0, max(MOST_DROPOUT, default))
    if get_origin(base) is Literal:
        return Choice(get_args(base))
    if base is bool:
        return Choice((False, True))
    if base is int and default > 0:
        return Range(int(max(least, default // 2)), int(min(most, 2 * default)))
    if base is float and math.isfinite(least) and math.isfinite(most):
        return Range(least, most)
    if base is float and default > 0:
        return Range(max(least, default / AROUND), min(most, default * AROUND), log=True)
    return None


def _unpacked(kind: Any) -> tuple[Any, float, float]:
    """Return a setting's type and bounds. An exclusive bound is moved inside by a twentieth of the range."""
    if get_origin(kind) is not Annotated:
        return kind, -math.inf, math.inf
    base, *metadata = get_args(kind)
    limits = [limit for item in metadata for limit in getattr(item, "metadata", [item])]
    found = {key: getattr(m, key) for m in limits for key in ("gt", "ge", "lt", "le") if hasattr(m, key)}
    least, most = found.get("ge", found.get("gt", -math.inf)), found.get("le", found.get("lt", math.inf))
    off = (most - least) / 20 if math.isfinite(most - least) else 0.0
    return base, least + off * ("gt" in found), most - off * ("lt" in found)


def read_space(path: Path) -> dict[str, Any]:
    """Read the values of a space file, for `parse_space`."""
    return read_config(path, "hidden: [64, 128]", kind="space", content="settings and where to search them")


def parse_space(
    method: type[Method], values: Mapping[str, Any], checked: Callable[[str, Any], Any], known: Mapping[str, Any]
) -> Space:
    """Parse a user's space; raise `FedquiltError` with one sentence about the first fault.

    Args:
        method: the method whose settings are searched.
        values: for each setting a list of values, or low, high and optionally log.
        checked: converts a setting's value to the setting's type, or raises an error.
        known: all settings of the method.
    """
    space: Space = {}
    for name, value in values.items():
        if name not in known:
            raise unknown(f"setting of {method.name}", name, known)
        if isinstance(value, Mapping):
            space[name] = _range(name, value, checked)
        elif isinstance(value, list | tuple):
            space[name] = _choice(name, value, checked)
        else:
            raise FedquiltError(
                f"The space of {name} must be a list of values, or low and high, such as "
                f"'{name}: [...]' or '{name}: {{low: ..., high: ...}}'."
            )
    return space


def _choice(name: str, values: list[Any] | tuple[Any, ...], checked: Callable[[str, Any], Any]) -> Choice:
    if not values:
        raise FedquiltError(f"The space of {name} is an empty list; list at least one value.")
    found = tuple(checked(name, value) for value in values)
    for value in found:
        if found.count(value) > 1:
            raise FedquiltError(f"The space of {name} lists {value} twice; list each value once.")
    return Choice(found)


def _range(name: str, value: Mapping[str, Any], checked: Callable[[str, Any], Any]) -> Range:
    for key in value:
        if key not in ("low", "high", "log"):
            raise unknown(f"word in the space of {name} called", str(key), ("low", "high", "log"))
    for key in ("low", "high"):
        if key not in value:
            raise FedquiltError(f"The space of {name} has no {key}; give both low and high.")
    low, high, log = checked(name, value["low"]), checked(name, value["high"]), value.get("log", False)
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers:
        raise FedquiltError(f"The setting {name} is not a number, so it has no low and high; list its values instead.")
    if not isinstance(log, bool):
        raise FedquiltError(f"The space of {name} has log={log!r}; write true or false.")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise FedquiltError(f"The space of {name} goes from {low} to {high}; low must be below high.")
    if log and low <= 0:
        raise FedquiltError(f"The space of {name} begins at {low}, which has no logarithm; begin above 0.")
    return Range(low, high, log)
