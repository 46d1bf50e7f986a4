"""random: nodes dealt to clients uniformly at random."""

from __future__ import annotations

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.graphs.graph import Graph
from fedquilt.partition.kind import Drawn, register_kind


@register_kind("random", "nodes uniformly at random into M parts of near-equal size")
def random(graph: Graph, clients: int, seed: int) -> Drawn:
    """FED-PUB's Table 7: nodes dealt uniformly at random; sizes differ by one node at most."""
    order = numpy_stream(seed, "partition", "random").permutation(graph.nodes)
    return np.array_split(order, clients), {}
