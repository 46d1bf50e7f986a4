"""`SampledNeighbours`: a few training nodes of one client with some of their neighbours, drawn at random (GraphSAGE).

Hamilton, Ying and Leskovec, NeurIPS 2017. A client with T training nodes that trains on N of them a step takes S = ceil(T / N)
steps an epoch, and every epoch deals the training nodes anew to its S steps. Of each of a step's training nodes f_1 neighbours
are drawn (all, where it has fewer), of each node that is new among these f_2, and so on. The part has the nodes that were met,
and the edges along which they were, in both directions, as PyTorch Geometric's `NeighborLoader` gives them with
``subgraph_type="bidirectional"``. Its loss is over the step's training nodes alone.

Memory of a step: at most N (1 + f_1 + f_1 f_2 + ...) nodes, with their features, and no more than the client has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import mul

import numpy as np

from fedquilt.cohort import MOST_HOPS, MOST_NEIGHBOURS
from fedquilt.cohort.client import Client
from fedquilt.cohort.subgraphs import Subgraphs
from fedquilt.common.random_streams import numpy_stream
from fedquilt.graphs.split import NONE, TRAIN


class SampledNeighbours(Subgraphs):
    """How one client's training nodes are dealt to steps, and what neighbours they have there.

    Attributes:
        client: whose.
        fan_out: f_1, f_2, ...: how many neighbours are drawn of a node at each distance from the training nodes.
        steps: S, the training steps of an epoch; 1, with the whole graph, where that has no more nodes than a step asks for.
    """

    def __init__(self, client: Client, nodes: int, fan_out: Sequence[int]) -> None:
        """`nodes` is how many training nodes a step takes."""
        super().__init__(client)
        self.fan_out = list(fan_out)
        self._whole = client.graph.nodes <= nodes
        self.steps = 1 if self._whole else max(1, -(-client.training_nodes.size // nodes))

    def dealt(self, seed: int, epoch: int) -> list[Callable[[], Client]]:
        """For each step of an epoch what makes the part that it reads, drawn from the seed, the client and the epoch."""
        owner = ("client", self.client.id, "sampled neighbours", epoch)
        cards = numpy_stream(seed, *owner).permutation(self.client.training_nodes)
        return [
            partial(self._part, np.sort(cards[step :: self.steps]), partial(numpy_stream, seed, *owner, step))
            for step in range(self.steps)
        ]

    def _part(self, training: np.ndarray, stream: Callable[[], np.random.Generator]) -> Client:
        return self.client if self._whole else self.around(training, stream())

    def around(self, training: np.ndarray, stream: np.random.Generator) -> Client:
        """The client with these of its training nodes, in rising order, and neighbours that are drawn."""
        frontier, ends, entries = training, [np.empty((2, 0), dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        met = np.zeros(self.client.graph.nodes, dtype=bool)
        met[training] = True
        for most in self.fan_out:
            owner, drawn = self._drawn(frontier, most, stream)
            neighbours = self._neighbours[1][drawn].astype(np.int64)
            ends.append(np.stack([frontier[owner], neighbours]))
            entries.append(drawn)
            frontier = np.unique(neighbours[~met[neighbours]])
            met[frontier] = True
        (u, v), joined = np.sort(np.concatenate(ends, axis=1), axis=0), np.concatenate(entries)
        _, once = np.unique(u * met.size + v, return_index=True)  # an edge may be met from both of its ends
        nodes = np.flatnonzero(met)
        part = self._with(nodes, np.searchsorted(nodes, u[once]), np.searchsorted(nodes, v[once]), joined[once])
        part.split[part.split == TRAIN] = NONE
        part.split[np.searchsorted(nodes, training)] = TRAIN
        return part

    def _drawn(self, nodes: np.ndarray, most: int, stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """At most so many entries of each of these nodes in `_neighbours`, each subset with the same chance.

        Returns:
            The place in `nodes` of the node of each entry, and its number.
        """
        owner, entries = self._entries(nodes)
        order = np.lexsort((stream.random(entries.size), owner))
        rank = np.arange(order.size) - np.searchsorted(owner, owner)  # lexsort leaves the owners in their order
        taken = order[rank < most]
        return owner[taken], entries[taken]


def sampled_neighbours_of(client: Client, nodes: int, fan_out: Sequence[int]) -> SampledNeighbours:
    """What `SampledNeighbours` is for these settings, made once."""
    key = ("sampled neighbours", nodes, *fan_out)
    found: SampledNeighbours = client.once(key, lambda c: SampledNeighbours(c, nodes, fan_out))
    return found


def most_nodes(training: int, fan_out: Sequence[int]) -> int:
    """How many nodes a step with so many training nodes has at most: N (1 + f_1 + f_1 f_2 + ...)."""
    return training * sum(accumulate(fan_out, mul, initial=1))


def parse_fan_out(text: str) -> tuple[int, ...]:
    """The numbers of a text such as "10,5"; none of an empty one. ValueError where it has others."""
    try:
        fan_out = tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        fan_out = (0,)
    if not possible_fan_out(fan_out):
        raise ValueError(f"give at most {MOST_HOPS} numbers of neighbours from 1 to {MOST_NEIGHBOURS:,}, such as 10,5")
    return fan_out


def possible_fan_out(fan_out: Sequence[object]) -> bool:
    """Whether these, which may come from outside, are numbers of neighbours."""
    return len(fan_out) <= MOST_HOPS and all(type(most) is int and 0 < most <= MOST_NEIGHBOURS for most in fan_out)
