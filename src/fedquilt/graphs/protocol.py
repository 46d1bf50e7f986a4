"""The protocol of a graph: how it is prepared, split, trained and scored unless the user says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Protocol:
    """The defaults of a run on one graph, as published results use it. The class's own defaults are for a user's own graph.

    Attributes:
        metric: the metric by which clients are evaluated; "auc" for graphs with two very unequal classes.
        largest_component: keep only the largest connected component.
        normalise_features: divide each node's features by their sum.
        split: the shares of the labelled nodes for training, validation and test.
        rounds: communication rounds.
        epochs: local epochs in each round.
    """

    metric: Literal["accuracy", "auc"] = "accuracy"
    largest_component: bool = False
    normalise_features: bool = False
    split: tuple[float, float, float] = (0.2, 0.4, 0.4)
    rounds: int = 100
    epochs: int = 1
