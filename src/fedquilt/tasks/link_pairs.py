"""The pairs of nodes that link prediction scores, of a whole cohort: edges, fixed negatives, and negatives drawn in each step.

Nothing here reads a value on the host after a cohort's pairs were made once, so that a round can be a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.graphs.node_pairs import pair_count
from fedquilt.tasks.link_split import JOINED, PARTS, negatives
from fedquilt.tasks.metric import Part

NEGATIVE_LAYER = 59  # the `layer` of these draws in `Draws`; a model's own layers use low numbers


@dataclass(eq=False)
class NodePairs:
    """P pairs of nodes, client by client.

    Attributes:
        ends: [2, P] int64, the positions of both nodes within their client.
        client: [P] int64, whose they are. position: [P] int64, the place of a pair among its client's.
        count: [M] float32, the pairs of each client.
    """

    ends: Tensor
    client: Tensor
    position: Tensor
    count: Tensor

    @classmethod
    def of(cls, cohort: Cohort, arrays: list[np.ndarray]) -> NodePairs:
        """The pairs [2, P_m] of each client of a cohort."""
        counts = [array.shape[1] for array in arrays]
        owner = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
        ends, client, position = (
            torch.from_numpy(array).to(cohort.device) for array in (np.concatenate(arrays, axis=1), owner, place)
        )
        return cls(ends, client, position, torch.tensor(counts, dtype=torch.float32, device=cohort.device))


@dataclass(frozen=True, eq=False)
class FreePairs:
    """All pairs of a client's nodes that are not joined, of every client, numbered one client after the other.

    Attributes:
        taken: [E] int64 in rising order: the number of each edge among all pairs, less the edges before it.
        pairs: [M] the pairs of the clients before. free: [M] the free pairs of the clients before.
        count: [M] the free pairs of each client.
    """

    taken: Tensor
    pairs: Tensor
    free: Tensor
    count: Tensor

    @classmethod
    def of(cls, cohort: Cohort) -> FreePairs:
        """Those of a cohort whose clients' edges were split."""
        joined = [client.held_out[JOINED] for client in cohort.members]
        pairs = np.array([pair_count(client.graph.nodes) for client in cohort.members], dtype=np.int64)
        edges = np.array([len(own) for own in joined], dtype=np.int64)
        before = np.cumsum(pairs) - pairs
        numbers = np.concatenate(joined) + np.repeat(before, edges)
        free = pairs - edges
        arrays = (numbers - np.arange(numbers.size), before, np.cumsum(free) - free, free)
        return cls(*(torch.from_numpy(array).to(cohort.device) for array in arrays))

    def draw(self, like: NodePairs, draws: Draws) -> NodePairs:
        """As many free pairs of each client, any of them with the same chance; (0, 0) of a client that has none.

        A pair's draw depends on its client, its place and the step alone.
        """
        words = (draws.words(like, 2, NEGATIVE_LAYER) & 0x7FFFFFFF).long()
        number = (words[:, 0] << 31 | words[:, 1]) % self.count[like.client].clamp_min(1)
        number = number + self.free[like.client]
        number = number + torch.searchsorted(self.taken, number, right=True) - self.pairs[like.client]
        number = torch.where(self.count[like.client] > 0, number, 0)
        v = ((1 + (1 + 8 * number.double()).sqrt()) / 2).long()
        v = v - (v * (v - 1) // 2 > number).long()  # the root may be rounded to the next number
        v = v + (v * (v + 1) // 2 <= number).long()
        ends = torch.stack([number - v * (v - 1) // 2, v])
        return NodePairs(torch.where(self.count[like.client] > 0, ends, 0), like.client, like.position, like.count)

    @property
    def some(self) -> Tensor:
        """[M] float32: 1 for a client that has free pairs, else 0."""
        return (self.count > 0).float()


class CohortPairs:
    """The pairs of a cohort whose clients' edges were split.

    Attributes:
        edges: the edges of each part. negatives: its fixed pairs that are not joined. free: all pairs that are not.
    """

    def __init__(self, cohort: Cohort) -> None:
        held = [client.held_out for client in cohort.members]
        self.edges: dict[Part, NodePairs] = {part: NodePairs.of(cohort, [own[part] for own in held]) for part in PARTS}
        self.negatives: dict[Part, NodePairs] = {
            part: NodePairs.of(cohort, [own[negatives(part)] for own in held]) for part in PARTS
        }
        self.free = FreePairs.of(cohort)


def pairs_of_cohort(cohort: Cohort) -> CohortPairs:
    """The pairs of a cohort; made once."""
    made: CohortPairs = cohort.once("link pairs", CohortPairs)
    return made
