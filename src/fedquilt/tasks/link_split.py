"""The split of one client's edges for link prediction, by the conventions of PyTorch Geometric's `RandomLinkSplit`.

An undirected edge counts once and is in one part, so that no part has it in one direction and another part in the other:

    messages       messages pass over it, in training and ever after
    train          supervision: training predicts it, and no message passes over it while training
    val            chooses the best round
    test           is reported

Messages pass over `messages` in training, also over `train` in validation, and over `val` too in the test. Of E edges,
int(share E) are validation and test edges. Of the E' others, int(disjoint E') are supervision, and at least one. With disjoint
0 all of them are supervision, and messages pass over them too.

A part's negatives are pairs of the client's nodes, as many as the part has edges, and none of them is an edge of any part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedquilt.cohort.client import MEAN_WEIGHT, Client
from fedquilt.common.random_streams import numpy_stream
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.node_pairs import draw_pairs, number_pairs, pair_count
from fedquilt.graphs.split import TRAIN, Shares
from fedquilt.tasks.metric import Part

PARTS: tuple[Part, ...] = ("test", "val", "train")  # in the order in which they are drawn
JOINED = "joined"  # in `Client.held_out`: [E] the numbers of all edges (`fedquilt.graphs.node_pairs`), in rising order
_SEEN_TOO: dict[Part | None, tuple[Part, ...]] = {
    "train": (),
    "val": ("train",),
    "test": ("train", "val"),
    None: ("train", "val", "test"),
}


def negatives(part: Part) -> str:
    """The name in `Client.held_out` of a part's pairs that are not joined, [2, n]; those of its edges have the part's name."""
    return f"{part} negatives"


def weights(part: Part) -> str:
    """The name in `Client.held_out` of the weights of a part's edges, [n] float32, where edges have weights."""
    return f"{part} weights"


@dataclass(frozen=True)
class EdgeSplit:
    """How edges are split.

    Attributes:
        shares: of the edges for training, validation and test; they sum to one.
        disjoint: the share of the training edges that is supervision, without messages; 0: all are both.
    """

    shares: Shares
    disjoint: float

    def counts(self, edges: int) -> dict[Part, int]:
        """How many of so many edges are supervision, validation and test edges."""
        val, test = int(self.shares.val * edges), int(self.shares.test * edges)
        train = edges - val - test
        if self.disjoint:
            train = min(train, max(1, int(self.disjoint * train)))
        return {"train": train, "val": val, "test": test}

    def client(self, number: int, graph: Graph, seed: int) -> Client:
        """One owner's graph as a client: over its graph messages pass in training, `Client.held_out` has the parts.

        The draw belongs to (seed, client) and does not depend on the order of the edges in the graph. All nodes train, since
        any of them may be an end of a pair.
        """
        rng = numpy_stream(seed, "client", number, "link split")
        numbers = number_pairs(graph.edges)
        order = np.argsort(numbers)
        held: dict[str, np.ndarray] = {JOINED: numbers[order]}
        order, counts = rng.permutation(order), self.counts(len(order))
        seen, first = np.ones(len(order), dtype=bool), 0
        for part in PARTS:
            mine = np.sort(order[first : first + counts[part]])
            first += counts[part]
            held[part] = graph.edges[:, mine]
            if graph.edge_weights is not None:
                held[weights(part)] = graph.edge_weights[mine]
            seen[mine] = part == "train" and not self.disjoint
        free = pair_count(graph.nodes) - len(order)
        drawn, first = draw_pairs(graph.nodes, held[JOINED], min(free, sum(counts.values())), rng), 0
        for part in PARTS:
            held[negatives(part)] = drawn[:, first : first + counts[part]]
            first += counts[part]
        return Client(number, graph.some_edges(seen), np.full(graph.nodes, TRAIN, dtype=np.int8), held)


def seen_client(client: Client, part: Part | None) -> Client:
    """The client with the graph over which messages pass in a part, for None with all edges; itself where it is the same."""
    graph, held = client.graph, client.held_out
    edges = np.concatenate([graph.edges, *(held[other] for other in _SEEN_TOO[part])], axis=1)
    # Without supervision apart, the training edges are there already.
    _, kept = np.unique(number_pairs(edges), return_index=True)
    if len(kept) == graph.edges.shape[1]:
        return client
    if graph.edge_weights is None:
        return replace(client, graph=graph.with_edges(edges[:, kept]))
    strengths = np.concatenate([graph.edge_weights, *(held[weights(other)] for other in _SEEN_TOO[part])])
    other = replace(client, graph=graph.with_edges(edges[:, kept], strengths[kept]))
    other.preset(MEAN_WEIGHT, client.mean_weight)  # weights are relative to the mean of the training graph
    return other


def without_part(client: Client, part: Part) -> Client:
    """The client without the edges, negatives and weights of a part. Its edges stay known as pairs that are no negatives."""
    gone = {name: array[..., :0] for name, array in client.held_out.items() if name.split(" ")[0] == part}
    return replace(client, held_out={**client.held_out, **gone})
