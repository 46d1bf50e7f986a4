"""AdaFGL's Homophily Confidence Score: how well label propagation recovers training labels that were masked."""

from __future__ import annotations

import numpy as np

from fedquilt.cohort.client import Client

HOMOPHILY_CONFIDENCE = "homophily confidence"  # the name under which a client's is stored with it
STEPS, OWN = 10, 0.5


def homophily_confidence(client: Client) -> float:
    """The share of the training labels that propagation recovers from the other half of them: in [0, 1].

    Training nodes are halved within each class, in the order of their numbers, and each half is masked in turn, so that every
    training label is asked for once. The other half's labels spread along the edges: Y <- OWN Y^0 + (1 - OWN) A Y, STEPS
    times. A node that none of them reached counts as a guess, 1 / C. No label but those of training nodes is read.
    """
    known, classes = client.training_nodes, client.graph.classes
    if not known.size:
        return 1.0 / classes
    y = client.graph.y[known]
    order = np.argsort(y, kind="stable")
    half = np.empty(known.size, dtype=np.int64)
    half[order] = np.arange(known.size) % 2
    right = 0.0
    for masked in (0, 1):
        first = np.zeros((client.graph.nodes, classes))
        kept = half != masked
        first[known[kept], y[kept]] = 1.0
        spread = first
        for _ in range(STEPS):
            spread = OWN * first + (1 - OWN) * (client.gcn @ spread)
        asked = spread[known[~kept]]
        reached = asked.sum(1) > 0
        right += float((asked.argmax(1) == y[~kept])[reached].sum()) + float((~reached).sum()) / classes
    return right / known.size
