"""Which labelled nodes train a model, which choose it, and which test it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.build import PARTS
from fedquilt.graphs.graph import Graph

TRAIN, VAL, TEST, NONE = 0, 1, 2, -1
GIVEN = "given"
FEWEST_FOLDS = 3  # one to train, one to validate, one to test


class Split(Protocol):
    """A way to split the labelled nodes of a graph; `parse_split` gives one."""

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """The split of a run's seed: [N] int8 of TRAIN, VAL, TEST or NONE. `attempt` is another draw from that seed."""


class Shares(NamedTuple):
    """Shares of the labelled nodes for train, val and test; they sum to 1 or less. Each seed draws anew."""

    train: float
    val: float
    test: float

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """See `draw_split`."""
        return draw_split(graph, self, seed, attempt)


@dataclass(frozen=True)
class Folds:
    """Labelled nodes in `count` random groups of equal size (or one more): one tests, the next validates, the rest train.

    Seeds 0 .. count-1 are the runs over one grouping, each with another test group; the next `count` seeds have another
    grouping, and so on.
    """

    count: int

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """Group seed % count tests and the one after it validates, in grouping number seed // count."""
        things, thing = _things(graph)
        if len(things) < self.count:
            raise FedquiltError(
                f"{graph.name} has {len(things)} labelled nodes, too few for {self.count} folds; "
                "label more of them or choose another split."
            )
        grouping, test = divmod(seed, self.count)
        order = numpy_stream(grouping, "split", "folds", self.count, attempt).permutation(things)
        groups = np.array_split(order, self.count)
        parts = np.full(graph.nodes, TRAIN, dtype=np.int8)
        parts[groups[test]] = TEST
        parts[groups[(test + 1) % self.count]] = VAL
        return np.where(graph.y >= 0, parts[thing], NONE).astype(np.int8)


@dataclass(frozen=True)
class Given:
    """The split that came with the graph, whatever the seed and the attempt."""

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """See `given_split`."""
        return given_split(graph)


def draw_split(graph: Graph, fractions: tuple[float, float, float], seed: int, attempt: int = 0) -> np.ndarray:
    """A random split over the labelled nodes of the whole graph, before anyone partitions it.

    Args:
        graph: the graph; its unlabelled nodes belong to no part.
        fractions: the shares for train, val and test; they sum to 1 or less.
        seed: the run's seed.
        attempt: another draw from the same seed, for a caller who had to reject one.

    Returns:
        [N] int8 of TRAIN, VAL, TEST or NONE.
    """
    things, thing = _things(graph)
    train, val = (round(share * len(things)) for share in fractions[:2])
    rest = len(things) - train - val
    whole = abs(sum(fractions) - 1) < 1e-9
    test = rest if whole else min(rest, round(fractions[2] * len(things)))
    if min(train, val, test) < 1:
        raise FedquiltError(
            f"{graph.name} has {len(things)} labelled nodes, too few to split {format_split(fractions)}; "
            "label more of them or choose another split."
        )
    order = numpy_stream(seed, "split", attempt).permutation(things)
    parts = np.full(graph.nodes, NONE, dtype=np.int8)
    parts[order[:train]] = TRAIN
    parts[order[train : train + val]] = VAL
    parts[order[train + val : train + val + test]] = TEST
    return np.where(graph.y >= 0, parts[thing], NONE).astype(np.int8)


def _things(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """What is split, in rising order, and which of it each node is: labelled nodes, or what labelled nodes are copies of."""
    if graph.copies is None:
        return np.flatnonzero(graph.y >= 0), np.arange(graph.nodes)
    return np.unique(graph.copies[graph.y >= 0]), graph.copies


def given_split(graph: Graph) -> np.ndarray:
    """The split that came with the graph, in the form of `draw_split`; an unlabelled node is in no part."""
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
    """`"20/40/40"` as `Shares`, `"5fold"` as `Folds`, `"given"` as `Given`."""
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
    """Shares as they are written, such as `"20/40/40"`."""
    return "/".join(f"{100 * share:g}" for share in fractions)
