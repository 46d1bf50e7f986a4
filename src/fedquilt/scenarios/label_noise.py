"""Label noise: some training labels are wrong, to see how robust a method is. Validation and test labels stay true.

With probability p, independently for each training node, its class c becomes another one: any of the other C - 1 with the same
chance (*uniform*, symmetric noise), or the next, (c + 1) mod C (*pair*, as where two classes are mixed up).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.scenarios.kinds import LabelNoiseKind


def with_label_noise(client: Client, chance: float, kind: LabelNoiseKind, rng: np.random.Generator) -> Client:
    """Return the client with wrong classes at some of its training nodes.

    Args:
        client: the client; it is not changed.
        chance: p, in 0..1.
        kind: which class a wrong one is.
        rng: the random generator.
    """
    if chance <= 0:
        return client
    y, classes = client.graph.y.copy(), client.graph.classes
    nodes = client.training_nodes
    wrong = nodes[rng.random(nodes.size) < chance]
    step = rng.integers(1, classes, size=wrong.size) if kind == "uniform" else 1
    y[wrong] = (y[wrong] + step) % classes
    return replace(client, graph=replace(client.graph, y=y))


def check_label_noise(task: str, has_classes: bool, classes: int) -> None:
    """Refuse label noise where there are no classes, or there is no other one."""
    if not has_classes:
        raise FedquiltError(f"The task {task} has no classes that labels could be mistaken for; leave label_noise out.")
    if classes < 2:
        raise FedquiltError("There is one class only, which cannot be mistaken for another; leave label_noise out.")
