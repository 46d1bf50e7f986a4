"""Which labelled nodes train a model, which choose it, and which test it."""

from __future__ import annotations

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.build import PARTS
from fedquilt.graphs.graph import Graph

TRAIN, VAL, TEST, NONE = 0, 1, 2, -1


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
    # torch sits behind this module and takes seconds to import; reading a graph should not wait for it.
    from fedquilt.randomness import numpy_stream

    labelled = np.flatnonzero(graph.y >= 0)
    train, val = (round(share * len(labelled)) for share in fractions[:2])
    rest = len(labelled) - train - val
    whole = abs(sum(fractions) - 1) < 1e-9
    test = rest if whole else min(rest, round(fractions[2] * len(labelled)))
    if min(train, val, test) < 1:
        raise FedquiltError(
            f"{graph.name} has {len(labelled)} labelled nodes, too few to split {format_split(fractions)}; "
            "label more of them or choose another split."
        )
    order = numpy_stream(seed, "split", attempt).permutation(labelled)
    parts = np.full(graph.nodes, NONE, dtype=np.int8)
    parts[order[:train]] = TRAIN
    parts[order[train : train + val]] = VAL
    parts[order[train + val : train + val + test]] = TEST
    return parts


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


def parse_split(text: str) -> tuple[float, float, float]:
    """The shares of `"20/40/40"`, as (0.2, 0.4, 0.4)."""
    try:
        numbers = [float(piece) for piece in text.split("/")]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(np.isfinite(numbers)):
        raise FedquiltError(f"The split '{text}' is not three percentages; write train/val/test, such as 20/40/40.")
    if min(numbers) <= 0:
        raise FedquiltError(f"The split '{text}' leaves a part empty; all three percentages must be above 0.")
    if sum(numbers) > 100 + 1e-9:
        raise FedquiltError(f"The split '{text}' sums to {sum(numbers):g}; the three percentages must not exceed 100.")
    train, val, test = (number / 100 for number in numbers)
    return train, val, test


def format_split(fractions: tuple[float, float, float]) -> str:
    """The reverse of `parse_split`."""
    return "/".join(f"{100 * share:g}" for share in fractions)
