"""Graphs that need no file: a small one made for a first try, the two of FED-PUB's Figures 1 and 3, and one of any size.

Also which nodes are one client's in a graph that was made of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fedquilt.datasets.catalogue import choose, in_catalogue
from fedquilt.errors import FedquiltError
from fedquilt.graphs.build import build_graph
from fedquilt.graphs.graph import Graph

if TYPE_CHECKING:
    from numpy.random import Generator

# patchwork: communities of 140 nodes; which family each belongs to.
_FAMILIES = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
_COMMUNITY_NODES = 140
_CLASSES = 6
_WORDS_A_TOPIC = 25
_OTHER_WORDS = 50
# The two communities graphs: subgraphs (clients) in each community, chance of an edge inside and between
# communities.
_SUBGRAPH_NODES = 30
_FIGURE_1 = ((5, 5, 40), 0.5, 0.1)
_FIGURE_3 = ((5, 15), 0.7, 0.01)
# mosaic: nodes of a piece, and the shares of edges that stay inside one and that lead to the own class anywhere.
_PIECE_NODES = 100
_INSIDE, _ALIKE = 0.7, 0.2


def patchwork(seed: int = 0) -> Graph:
    """The embedded default: ten communities in three families, on which personalised federated learning pays.

    A community is a natural client. Within a family, communities have a similar mix of classes and use the
    same words for them; between families the mix differs, and the same words stand for *different* classes.
    So a client alone has few labels, one model for all must serve three families at once, and clients of one
    family can help each other. Nodes are grouped by community; edges run mostly inside a community and mostly
    between nodes of one class, some inside a family, few elsewhere.

    Its sizes and noise were picked by trying some twenty combinations and looking at the methods' results and at
    the similarity picture: it is an illustration, on which no method should be judged.
    """
    rng = _stream(seed, "patchwork")
    community, family = patchwork_communities()
    y = np.concatenate([rng.choice(_CLASSES, _COMMUNITY_NODES, p=mix) for mix in _class_mixes(rng)])
    same_class = y[:, None] == y[None, :]
    inside = community[:, None] == community[None, :]
    related = family[:, None] == family[None, :]
    chance = np.where(inside, np.where(same_class, 0.06, 0.01), np.where(related, 0.0008, 0.0002))
    return build_graph("patchwork", _draw_edges(rng, chance), _words(rng, _topic(y, family)), y, classes=_CLASSES)


def patchwork_communities() -> tuple[np.ndarray, np.ndarray]:
    """([N], [N]): the community and the family of each node of `patchwork`; the same for every seed."""
    return np.repeat(np.arange(len(_FAMILIES)), _COMMUNITY_NODES), np.repeat(_FAMILIES, _COMMUNITY_NODES)


def communities_1(seed: int = 0) -> Graph:
    """FED-PUB's Figure 1 (appendix B.3): communities of 5, 5 and 40 subgraphs of 30 nodes.

    Two nodes are joined with chance 0.5 inside a community and 0.1 between two. The paper gives no features
    and says of the labels only that their distributions differ. Ours: seven in ten nodes of community c have
    label c, the others are spread evenly, and features are Gaussian around one of C centres, chosen so that
    the leading label looks the same in every community. A model averaged over all clients then says of small
    communities what is true of the large one, which is the collapse that Figure 1 is about.
    """
    return _communities("communities-1", seed, *_FIGURE_1)


def communities_3(seed: int = 0) -> Graph:
    """FED-PUB's Figure 3 (appendix B.3): communities of 5 and 15 subgraphs of 30 nodes, chances 0.7 and 0.01.

    Labels and features as in `communities_1`.
    """
    return _communities("communities-3", seed, *_FIGURE_3)


def mosaic(seed: int = 0, nodes: int = 10_000, degree: int = 10, features: int = 64, classes: int = 10) -> Graph:
    """A graph of any size, in O(nodes features + nodes degree) time: a million nodes and five million edges in seconds.

    Nodes lie in pieces of 100 (the last may have fewer), each with a class of its own that six in ten of its nodes have;
    the others have any class. Of the nodes * degree / 2 edges drawn, seven in ten join two nodes of one piece, two in ten two
    of one class, and one in ten any two; loops and doubles are left out, so that the mean degree is a little less. Features are
    Gaussian around a centre for each class.

    It is there to see how time and memory grow; no method should be judged on it.
    """
    if min(nodes, features, classes) < 1:
        raise FedquiltError("A mosaic needs at least one node, one feature and one class; give larger numbers.")
    rng = _stream(seed, "mosaic")
    piece = _pieces(nodes)
    leading = rng.integers(classes, size=piece[-1] + 1)
    y = np.where(rng.random(nodes) < 0.6, leading[piece], rng.integers(classes, size=nodes))
    count = nodes * degree // 2
    inside, alike = int(_INSIDE * count), int((_INSIDE + _ALIKE) * count)
    u, draw = rng.integers(nodes, size=count), rng.random(count)
    first = piece[u[:inside]] * _PIECE_NODES
    near = first + (draw[:inside] * np.minimum(_PIECE_NODES, nodes - first)).astype(np.int64)
    # Nodes by their class, so that one of a class is a place in its stretch.
    order, sizes, own = np.argsort(y, kind="stable"), np.bincount(y, minlength=classes), y[u[inside:alike]]
    same = order[(np.cumsum(sizes) - sizes)[own] + (draw[inside:alike] * sizes[own]).astype(np.int64)]
    anywhere = (draw[alike:] * nodes).astype(np.int64)
    x = rng.standard_normal((nodes, features), dtype=np.float32)
    x += rng.standard_normal((classes, features), dtype=np.float32)[y]
    return build_graph("mosaic", np.stack([u, np.concatenate([near, same, anywhere])]), x, y, classes=classes)


def _pieces(nodes: int) -> np.ndarray:
    """[N] the piece of each node of `mosaic`."""
    return np.arange(nodes) // _PIECE_NODES


GENERATORS: dict[str, Callable[..., Graph]] = {
    "patchwork": patchwork,
    "communities-1": communities_1,
    "communities-3": communities_3,
    "mosaic": mosaic,
}


def natural_clients(name: str, seed: int = 0) -> np.ndarray | None:
    """[N] the client each node of a synthetic graph belongs to by construction; None for any other graph.

    For `patchwork` a client is a community; for the communities graphs it is a subgraph of 30 nodes; for
    `mosaic` it is a piece of 100; for `syn-cora:h=all` it is the graph of one homophily level. So far no graph's
    clients depend on its seed.
    """
    if not in_catalogue(name):
        return None
    choice = choose(name)
    if choice.parts:
        return np.repeat(np.arange(len(choice.parts)), choice.dataset.nodes)
    if choice.dataset.name == "patchwork":
        return patchwork_communities()[0]
    if choice.dataset.name == "mosaic":
        return _pieces(int(choice.parameters["nodes"]))
    sizes = {"communities-1": _FIGURE_1[0], "communities-3": _FIGURE_3[0]}.get(choice.dataset.name)
    return None if sizes is None else np.repeat(np.arange(sum(sizes)), _SUBGRAPH_NODES)


def _stream(seed: int, name: str) -> Generator:
    # torch sits behind this module and takes seconds to import; a listing of graphs should not wait for it.
    from fedquilt.common.random_streams import numpy_stream

    return numpy_stream(seed, "graph", name)


def _draw_edges(rng: Generator, chance: np.ndarray) -> np.ndarray:
    """[2, E]: each pair of nodes joined with its own chance."""
    hit = rng.random(chance.shape, dtype=np.float32) < chance
    return np.stack(np.nonzero(np.triu(hit, k=1)))


def _class_mixes(rng: Generator) -> list[np.ndarray]:
    """How likely each class is in each community: two classes lead in a family, communities vary a little."""
    mixes = []
    for family in _FAMILIES:
        weights = np.ones(_CLASSES)
        weights[[2 * family, 2 * family + 1]] = 6.0, 5.0
        mixes.append(rng.dirichlet(60 * weights / weights.sum()))
    return mixes


def _topic(y: np.ndarray, family: np.ndarray) -> np.ndarray:
    """The topic a node writes about: each family has its own order of them."""
    return (y + 2 * family) % _CLASSES


def _words(rng: Generator, topic: np.ndarray) -> sp.csr_matrix:
    """[N, F] zeros and ones: a node uses some words of its topic, and rarely any other word."""
    words = np.repeat(np.arange(_CLASSES), _WORDS_A_TOPIC)
    chance = np.full((len(topic), len(words) + _OTHER_WORDS), 0.03)
    chance[:, : len(words)][words[None, :] == topic[:, None]] = 0.15
    return sp.csr_matrix((rng.random(chance.shape) < chance).astype(np.float32))


def _communities(name: str, seed: int, sizes: tuple[int, ...], inside: float, between: float) -> Graph:
    rng = _stream(seed, name)
    community = np.repeat(np.arange(len(sizes)), np.array(sizes) * _SUBGRAPH_NODES)
    classes, features, leading = len(sizes), 32, 0.7
    other = (community + rng.integers(1, classes, len(community))) % classes
    y = np.where(rng.random(len(community)) < leading, community, other)
    # The same features mean another label in another community: its leading label always looks alike.
    centre = 2 * rng.normal(size=(classes, features))
    x = centre[(y - community) % classes] + rng.normal(size=(len(y), features))
    chance = np.where(community[:, None] == community[None, :], inside, between)
    return build_graph(name, _draw_edges(rng, chance), x, y, classes=classes)
