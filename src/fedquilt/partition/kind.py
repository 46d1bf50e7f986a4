"""The declaration of a kind of partition, and the registry of kinds.

A kind is one module in `fedquilt.partition.kinds`: a function decorated with `register_kind`. Nothing else lists kinds.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fedquilt.common.registry import Registry
from fedquilt.errors import FedquiltError

Drawn: TypeAlias = tuple[list[np.ndarray], dict[str, object]]
"""The result of a kind's function: the nodes of each client, and the settings to store with the partition."""
Draw: TypeAlias = Callable[..., Drawn]


@dataclass(frozen=True)
class Option:
    """An option of a kind.

    Attributes:
        name: the keyword under which the kind's function takes it.
        type: int, float (above 0), list (of whole numbers) or np.ndarray (checked by the kind itself).
        help: one line.
        least: the smallest whole number allowed.
    """

    name: str
    type: type
    help: str
    least: int = 1

    def validate(self, kind: str, value: Any) -> Any:
        """Return the value as int, float or list of int; raise an error if it has the wrong type or is too small."""
        if self.type is np.ndarray:
            return value
        if self.type is float:
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise FedquiltError(
                    f"A partition of kind '{kind}' takes {self.name}, a number above 0, not {value}; give {self.help}."
                )
            return float(value)
        many = self.type is list
        try:
            numbers = [operator.index(number) for number in (value if many else [value])]
        except TypeError:
            numbers = []
        if not numbers or min(numbers) < self.least:
            wanted = f"{self.name}, whole numbers of {self.least}" if many else f"a {self.name} of {self.least}"
            raise FedquiltError(f"A partition of kind '{kind}' takes {wanted} or more, not {value}; give {self.help}.")
        return numbers if many else numbers[0]


@dataclass(frozen=True)
class Kind:
    """One way to cut a graph into clients.

    Attributes:
        name: what a user types.
        description: one line for help texts.
        draw: `(graph, clients, seed, **options) -> (nodes, settings)`; nodes are in any order, distinct for each client.
        options: the options it takes.
        clients: how the number of clients is determined. "given": the user has to give it. "optional": the user may give it,
            and it has to agree with the options. "found": it follows from the graph.
        natural: whether it takes the dataset's natural clients, as the option `labels`.
        seeded: whether the result depends on the seed.
        min_train: the number of training nodes that each client gets unless the run says otherwise: splits are drawn again
            until they fit. None: a split is drawn once.
        clients_per_part: how many clients, one after the other, are drawn from one part of the graph.
    """

    name: str
    description: str
    draw: Draw
    options: tuple[Option, ...] = ()
    clients: Literal["given", "optional", "found"] = "given"
    natural: bool = False
    seeded: bool = True
    min_train: int | None = None
    clients_per_part: int = 1

    def validate_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Validate the options that are not None and return them; raise an error for one that the kind does not take."""
        known = {option.name: option for option in self.options}
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            if name not in known:
                raise FedquiltError(f"A partition of kind '{self.name}' takes no '{name}'; leave it out.")
        return {name: known[name].validate(self.name, value) for name, value in given.items()}


KINDS: Registry[Kind] = Registry("partition", "fedquilt.partition.kinds")


def register_kind(
    name: str, description: str, *, options: Sequence[Option] = (), **declared: Any
) -> Callable[[Draw], Draw]:
    """Register a function `(graph, clients, seed, **options) -> (nodes, settings)` as a kind of partition.

    `declared` are further attributes of `Kind`.
    """

    def decorate(draw: Draw) -> Draw:
        KINDS.add(name, Kind(name, description, draw, tuple(options), **declared))
        return draw

    return decorate


def partition_kinds() -> dict[str, str]:
    """All kinds of partition by name, each with the line that describes it."""
    return {name: kind.description for name, kind in sorted(KINDS.all().items())}
