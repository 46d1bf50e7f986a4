"""communities-1 and communities-3: the synthetic graphs of FED-PUB's Figures 1 and 3 (Baek et al., 2023, appendix B.3)."""

from __future__ import annotations

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.datasets.catalogue import register_synthetic
from fedquilt.datasets.random_edges import random_edges
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol

# Subgraphs (clients) in each community, and the chance of an edge inside a community and between two.
_FIGURE_1 = ((5, 5, 40), 0.5, 0.1)
_FIGURE_3 = ((5, 15), 0.7, 0.01)
_SUBGRAPH_NODES = 30
_PROTOCOL = Protocol(rounds=100, epochs=3)


def _subgraphs(communities: tuple[int, ...]) -> np.ndarray:
    """[N] the subgraph of each node; a subgraph is a natural client."""
    return np.repeat(np.arange(sum(communities)), _SUBGRAPH_NODES)


@register_synthetic(
    "communities-1",
    "FED-PUB's Figure 1: 3 communities, 50 clients",
    size=(1500, 408414, 32, 3),
    protocol=_PROTOCOL,
    natural_clients=lambda seed: _subgraphs(_FIGURE_1[0]),
)
def communities_1(seed: int = 0) -> Graph:
    """FED-PUB's Figure 1 (appendix B.3): communities of 5, 5 and 40 subgraphs of 30 nodes.

    Two nodes are joined with chance 0.5 inside a community and 0.1 between two. The paper gives no features
    and says of the labels only that their distributions differ. Ours: seven in ten nodes of community c have
    label c, the others are spread evenly. Features are Gaussian around one of C centres, chosen so that the leading label
    looks the same in every community. A model averaged over all clients then predicts the label of the large community for
    the small ones too: the collapse that Figure 1 shows.
    """
    return _communities("communities-1", seed, *_FIGURE_1)


@register_synthetic(
    "communities-3",
    "FED-PUB's Figure 3: 2 communities, 20 clients",
    size=(600, 79543, 32, 2),
    protocol=_PROTOCOL,
    natural_clients=lambda seed: _subgraphs(_FIGURE_3[0]),
)
def communities_3(seed: int = 0) -> Graph:
    """FED-PUB's Figure 3 (appendix B.3): communities of 5 and 15 subgraphs of 30 nodes, chances 0.7 and 0.01.

    Labels and features as in `communities_1`.
    """
    return _communities("communities-3", seed, *_FIGURE_3)


def _communities(name: str, seed: int, sizes: tuple[int, ...], inside: float, between: float) -> Graph:
    rng = numpy_stream(seed, "graph", name)
    community = np.repeat(np.arange(len(sizes)), np.array(sizes) * _SUBGRAPH_NODES)
    classes, features, leading = len(sizes), 32, 0.7
    other = (community + rng.integers(1, classes, len(community))) % classes
    y = np.where(rng.random(len(community)) < leading, community, other)
    # Features are relative to the community: its leading label always has the first centre.
    centre = 2 * rng.normal(size=(classes, features))
    x = centre[(y - community) % classes] + rng.normal(size=(len(y), features))
    chance = np.where(community[:, None] == community[None, :], inside, between)
    return Graph.from_arrays(name, random_edges(rng, chance), x, y, classes=classes)
