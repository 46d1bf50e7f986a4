"""GCFL+: Xie et al., Federated Graph Classification over Non-IID Graphs, NeurIPS 2021, section 5.2.

GCFL (`fedquilt.methods.gcfl`) cuts a cluster by the updates of a single round, which fluctuate. GCFL+ looks at the lengths of
each client's last updates, a sequence of as many numbers as `window`, and compares clients by dynamic time warping: those
whose updates rise and fall alike stay together. When a cluster is cut, and how each averages, is as in GCFL.

Where the code and the paper differ, or the paper leaves it open, and why (what was measured is in `fedquilt docs fidelity`):

- *Sequences* are of the lengths of updates, which the server knows; the public code has clients send norms of their last
  gradient. As there they are compared as they are; `standardise=true` divides each by its standard deviation.
- *Edges* are the largest distance in the cluster less a pair's, as in the public code (`edges=smallest`), and by default the
  mean distance less a pair's, where that is positive: see `fedquilt.methods.gcfl`.
- *After a cut* the sequences of the cluster's members begin anew; the public code's begin anew for all.
- *Partial participation.* A sequence has the rounds in which the client sent; a cluster is cut when all of its members have
  sent `window` updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RoundSizes, RunContext, State, register
from fedquilt.methods.gcfl import CLUSTER, Gcfl, GcflSettings
from fedquilt.nn.time_warping import warping_distances

SEQUENCE, COUNT, DISTANCE = "sequence", "count", "distance"


@dataclass(frozen=True)
class GcflPlusSettings(GcflSettings):
    """GCFL's settings and two more.

    Attributes:
        window: the updates whose lengths are compared.
        standardise: divide each sequence by its standard deviation, so that trends are compared and not sizes.
    """

    window: Annotated[int, Field(ge=2, le=1000)] = 10
    standardise: bool = False


@register("gcflplus")
class GcflPlus(Gcfl):
    """The server keeps, besides, the lengths of each client's last updates [M, window] and how many it has [M]."""

    title = "GCFL+"
    Settings = GcflPlusSettings
    searched = (*Gcfl.searched, "window")
    settings: GcflPlusSettings

    def __init__(self, settings: GcflPlusSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        if settings.edges == "cosines":
            raise FedquiltError(
                "edges=cosines is GCFL's: GCFL+ has distances, no cosines; set edges=mean or edges=smallest."
            )

    def more_state(self) -> State:
        """Empty sequences, and no distances."""
        clients = self.context.clients
        return {
            SEQUENCE: torch.zeros(clients, self.settings.window),
            COUNT: torch.zeros(clients, dtype=torch.int64),
            DISTANCE: torch.zeros(clients, clients),
        }

    def server_memory(self, sizes: RoundSizes) -> int:
        """Besides, one more matrix over all pairs, and the table of alignments where a cluster is cut."""
        return super().server_memory(sizes) + 4 * self.context.clients**2

    def remember_round(self, server: State, senders: Tensor, product: Tensor, length: Tensor) -> None:
        """Store the cosines, which are shown, and add the lengths to the sequences of those who sent."""
        super().remember_round(server, senders, product, length)
        moved = server[SEQUENCE][senders].roll(-1, dims=1)
        moved[:, -1] = length.to(moved.dtype)
        server[SEQUENCE][senders] = moved
        server[COUNT][senders] += 1

    def ready(self, server: State, members: Tensor) -> bool:
        """Whether all members have a whole sequence."""
        return bool((server[COUNT][members] >= self.settings.window).all())

    def similar(self, server: State, members: Tensor) -> Tensor:
        """How far the distances between members are below the mean, or the largest; not negative, [n, n]."""
        found = warping_distances(self.sequences(server)[members])
        server[DISTANCE][members.unsqueeze(1), members] = found
        pairs = found[~torch.eye(len(found), dtype=torch.bool)]
        level = pairs.mean() if self.settings.edges == "mean" else pairs.max()
        return (level - found).clamp_min(0.0)

    def sequences(self, server: State) -> Tensor:
        """The sequences as they are compared, [M, window]."""
        rows = server[SEQUENCE]
        return rows / rows.std(dim=1, keepdim=True).clamp_min(1e-12) if self.settings.standardise else rows

    def cut(self, server: State, cluster: int) -> None:
        """As GCFL's; the members' sequences begin anew."""
        members = server[CLUSTER] == cluster
        super().cut(server, cluster)
        server[COUNT][members] = 0
