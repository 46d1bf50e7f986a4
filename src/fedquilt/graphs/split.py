"""Split the labelled nodes of a graph into training, validation and test nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.validate import PARTS

TRAIN, VAL, TEST, NONE = 0, 1, 2, -1
GIVEN = "given"
FEWEST_FOLDS = 3  # one to train, one to validate, one to test


class Split(Protocol):
    """A way to split the labelled nodes of a graph; `parse_split` returns one."""

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """Draw the split of a run's seed: [N] int8 of TRAIN, VAL, TEST or NONE. Each `attempt` is another draw from it."""


class Shares(NamedTuple):
    """A random split by shares of the labelled nodes for train, val and test; they sum to 1 or less."""

    train: float
    val: float
    test: float

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """See `draw_split`."""
        return draw_split(graph, self, seed, attempt)


@dataclass(frozen=True)
class Folds:
    """Cross-validation: `count` random folds of equal size (or one more); one tests, the next validates, the rest train.

    Seeds 0 .. count-1 share one assignment of nodes to folds and each tests on another fold. The next `count` seeds share
    another assignment, and so on.
    """

    count: int

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """Test on fold seed % count and validate on the next one, in assignment number seed // count."""
        units, unit_of = _units(graph)
        if len(units) < self.count:
            raise FedquiltError(
                f"{graph.name} has {len(units)} labelled nodes, too few for {self.count} folds; "
                "label more of them or choose another split."
            )
        assignment, test = divmod(seed, self.count)
        order = numpy_stream(assignment, "split", "folds", self.count, attempt).permutation(units)
        folds = np.array_split(order, self.count)
        parts = np.full(graph.nodes, TRAIN, dtype=np.int8)
        parts[folds[test]] = TEST
        parts[folds[(test + 1) % self.count]] = VAL
        return np.where(graph.y >= 0, parts[unit_of], NONE).astype(np.int8)


@dataclass(frozen=True)
class Given:
    """The split that came with the graph: the same for every seed and attempt."""

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """See `given_split`."""
        return given_split(graph)


def draw_split(graph: Graph, fractions: tuple[float, float, float], seed: int, attempt: int = 0) -> np.ndarray:
    """Draw a random split of the labelled nodes of the whole graph, before it is partitioned.

    Args:
        graph: the graph; its unlabelled nodes belong to no part.
        fractions: the shares for train, val and test; they sum to 1 or less.
        seed: the run's seed.
        attempt: the number of the draw from this seed, for callers that draw again.

    Returns:
        [N] int8 of TRAIN, VAL, TEST or NONE.
    """
    units, unit_of = _units(graph)
    train, val = (round(share * len(units)) for share in fractions[:2])
    rest = len(units) - train - val
    complete = abs(sum(fractions) - 1) < 1e-9
    test = rest if complete else min(rest, round(fractions[2] * len(units)))
    if min(train, val, test) < 1:
        raise FedquiltError(
            f"{graph.name} has {len(units)} labelled nodes, too few to split {format_split(fractions)}; "
            "label more of them or choose another split."
        )
    order = numpy_stream(seed, "split", attempt).permutation(units)
    parts = np.full(graph.nodes, NONE, dtype=np.int8)
    parts[order[:train]] = TRAIN
    parts[order[train : train + val]] = VAL
    parts[order[train + val : train + val + test]] = TEST
    return np.where(graph.y >= 0, parts[unit_of], NONE).astype(np.int8)


def _units(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return the units that are split, sorted, and the unit of each node [N].

    A unit is a labelled node, or all copies of one node where the graph marks copies.
    """
    if graph.copies is None:
        return np.flatnonzero(graph.y >= 0), np.arange(graph.nodes)
    # Numbered anew: in a part of a larger graph the numbers may exceed the number of nodes.
    _, unit_of = np.unique(graph.copies, return_inverse=True)
    return np.unique(unit_of[graph.y >= 0]), unit_of


def given_split(graph: Graph) -> np.ndarray:
    """The split that came with the graph, in the form of `draw_split`. An unlabelled node is in no part."""
    if graph.masks is None:
        raise FedquiltError(
            f"{graph.name} has no given split; add train, val and test masks to it or choose a split such as 20/40/40."
        )
    parts = np.full(graph.nodes, NONE, dtype=np.int8)
    for part, code in zip(PARTS, (TRAIN, VAL, TEST), strict=True):
        parts[graph.masks[part] & (graph.y >= 0)] = code
        if not (parts == code).any():
            raise FedquiltError(
                f"{graph.name} has a given split without a labelled {part} node; mark some or choose a split "
                "such as 20/40/40."
            )
    return parts


def parse_split(text: str) -> Split:
    """Parse `"20/40/40"` as `Shares`, `"5fold"` as `Folds`, `"given"` as `Given`."""
    if text == GIVEN:
        return Given()
    if folds := re.fullmatch(r"(\d+)fold", text):
        if int(folds[1]) < FEWEST_FOLDS:
            raise FedquiltError(
                f"The split '{text}' has too few folds to train, validate and test; write {FEWEST_FOLDS}fold or more."
            )
        return Folds(int(folds[1]))
    return _parse_shares(text)


def _parse_shares(text: str) -> Shares:
    try:
        numbers = [float(piece) for piece in text.split("/")]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(np.isfinite(numbers)):
        raise FedquiltError(
            f"The split '{text}' is not three percentages; write train/val/test, such as 20/40/40, or 5fold, or given."
        )
    if min(numbers) <= 0:
        raise FedquiltError(f"The split '{text}' leaves a part empty; all three percentages must be above 0.")
    if sum(numbers) > 100 + 1e-9:
        raise FedquiltError(f"The split '{text}' sums to {sum(numbers):g}; the three percentages must not exceed 100.")
    return Shares(*(number / 100 for number in numbers))


def format_split(fractions: tuple[float, float, float]) -> str:
    """Write shares as percentages, such as `"20/40/40"`."""
    return "/".join(f"{100 * share:g}" for share in fractions)
