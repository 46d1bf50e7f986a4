"""A metric: how good outputs are, client by client, and how people read the number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

from torch import Tensor

from fedquilt.cohort.cohort import Cohort

Part = Literal["train", "val", "test"]
"""The parts of a split: `val` selects the best round, `test` is reported."""


@dataclass(frozen=True)
class Metric:
    """A metric of a task.

    Attributes:
        name: as options and files have it. title: as tables and figures have it.
        function: (cohort, outputs, part) -> [M] float32, each client's value; NaN where it is undefined. Of nodes with classes
            it reads the outputs at the part's nodes alone.
        higher_is_better: the direction in which a model is better.
        scale: what a value is multiplied with where people read it; 100 shows shares in percent.
        low, high: the range of possible values, before scaling.
    """

    name: str
    title: str
    function: Callable[[Cohort, Tensor, Part], Tensor]
    higher_is_better: bool = True
    scale: float = 100.0
    low: float = 0.0
    high: float = 1.0

    @overload
    def better(self, value: float, best: float) -> bool: ...

    @overload
    def better(self, value: Tensor, best: Tensor) -> Tensor: ...

    def better(self, value: Any, best: Any) -> Any:
        """Whether `value` is better than `best`, as a tensor on their device where they are tensors; False for NaN."""
        return value > best if self.higher_is_better else value < best

    @property
    def worst(self) -> float:
        """A value that every other is better than."""
        return -math.inf if self.higher_is_better else math.inf

    def shown(self, values: Tensor) -> list[float | None]:
        """[M] values as people read them; None where undefined."""
        scaled = (value * self.scale for value in values.double().tolist())
        return [None if math.isnan(value) else value for value in scaled]

    def possible(self, value: float) -> bool:
        """Whether a value, before scaling, is in the metric's range."""
        return self.low <= value <= self.high

    @property
    def in_points(self) -> bool:
        """Whether people read it in percent, so that a difference of one point means the same whatever a label's unit."""
        return self.scale == 100.0


def rows_of(cohort: Cohort, part: Part) -> Tensor:
    """The rows of the nodes of a part: [T] int64."""
    rows: Tensor = getattr(cohort, part)
    return rows
