"""patchwork: the default dataset, small and generated, for a first try."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fedquilt.common.random_streams import numpy_stream
from fedquilt.datasets.catalogue import register_synthetic
from fedquilt.datasets.random_edges import random_edges
from fedquilt.graphs.graph import Graph

_FAMILIES = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])  # the family of each community
_COMMUNITY_NODES = 140
_CLASSES = 6
_WORDS_A_TOPIC = 25
_OTHER_WORDS = 50


def patchwork_communities() -> tuple[np.ndarray, np.ndarray]:
    """([N], [N]): the community and the family of each node of `patchwork`; the same for every seed."""
    return np.repeat(np.arange(len(_FAMILIES)), _COMMUNITY_NODES), np.repeat(_FAMILIES, _COMMUNITY_NODES)


@register_synthetic(
    "patchwork",
    "ten communities in three families, for a first try",
    size=(1400, 2697, 200, 6),
    natural_clients=lambda seed: patchwork_communities()[0],
    node_groups=lambda seed: patchwork_communities()[1],
)
def patchwork(seed: int = 0) -> Graph:
    """The default dataset: ten communities in three families, on which personalised federated learning pays off.

    A community is a natural client. Communities of one family have a similar mix of classes and use the same words for them.
    Families differ in the mix, and the same words indicate *different* classes in them. So a client alone has few labels, a
    common model has to fit three families at once, and clients of one family can help each other. Nodes are sorted by
    community. Most edges join nodes of one community and of one class, some join nodes of one family, few any others.

    Sizes and noise were chosen by trying about twenty combinations and looking at the results of the methods: the graph is an
    illustration, and no method should be judged on it.
    """
    rng = numpy_stream(seed, "graph", "patchwork")
    community, family = patchwork_communities()
    y = np.concatenate([rng.choice(_CLASSES, _COMMUNITY_NODES, p=mix) for mix in _class_mixes(rng)])
    same_class = y[:, None] == y[None, :]
    inside = community[:, None] == community[None, :]
    related = family[:, None] == family[None, :]
    chance = np.where(inside, np.where(same_class, 0.06, 0.01), np.where(related, 0.0008, 0.0002))
    return Graph.from_arrays(
        "patchwork", random_edges(rng, chance), _words(rng, _topic(y, family)), y, classes=_CLASSES
    )


def _class_mixes(rng: np.random.Generator) -> list[np.ndarray]:
    """The probability of each class in each community: two classes lead in a family, communities vary a little."""
    mixes = []
    for family in _FAMILIES:
        weights = np.ones(_CLASSES)
        weights[[2 * family, 2 * family + 1]] = 6.0, 5.0
        mixes.append(rng.dirichlet(60 * weights / weights.sum()))
    return mixes


def _topic(y: np.ndarray, family: np.ndarray) -> np.ndarray:
    """Return the topic of each node's words. A class has another topic in each family."""
    return (y + 2 * family) % _CLASSES


def _words(rng: np.random.Generator, topic: np.ndarray) -> sp.csr_matrix:
    """Draw the features, [N, F] zeros and ones: a node uses some words of its topic, and rarely any other word."""
    words = np.repeat(np.arange(_CLASSES), _WORDS_A_TOPIC)
    chance = np.full((len(topic), len(words) + _OTHER_WORDS), 0.03)
    chance[:, : len(words)][words[None, :] == topic[:, None]] = 0.15
    return sp.csr_matrix((rng.random(chance.shape) < chance).astype(np.float32))
