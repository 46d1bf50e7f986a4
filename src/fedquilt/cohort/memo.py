"""`Memo`: cache values that are derived from immutable data."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, Self


class Memo:
    """Base class of immutable data: values derived from it are computed once and stored with it."""

    @cached_property
    def _memo(self) -> dict[Hashable, Any]:
        return {}

    def once(self, name: Hashable, make: Callable[[Self], Any]) -> Any:
        """Return the value called `name`; `make` computes it the first time, later calls return the stored one."""
        if name not in self._memo:
            self._memo[name] = make(self)
        return self._memo[name]

    def preset(self, name: Hashable, value: Any) -> None:
        """Store a known value, which `once` then returns instead of computing it."""
        self._memo[name] = value
