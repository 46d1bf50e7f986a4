"""Who takes part in a round, how much of its work each does, and whose upload arrives. Drawn from the seed.

The draws belong to the server and do not depend on the method, so that every method meets the same conditions with a seed. They
are made anew from the seed when they are asked for: nothing of them has to be stored for a resume.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.training.client_sampling import participants


@dataclass(frozen=True)
class Conditions:
    """What a federation meets beside a share of clients in each round; by default nothing.

    Attributes:
        drop_out: chance a round of a participant that its upload is lost. It received the download and trained.
        stragglers: chance a round of a participant to do a part of its training steps only: a share of them that is uniform in
            [0, 1), rounded down. One that does none sits the round out.
        join_late: share of the clients that join in `join_round`, and before it are not there.
        join_round: the first round in which they may take part.
        leave: share of the clients that leave before `leave_round`. They keep the models that they have then.
        leave_round: the first round in which they do not take part.
        upload_delay: an upload takes so many rounds at most, drawn evenly from 0 on, and until it has come its client
            takes no part (`fedquilt.training.buffered_uploads`).
        buffer: the server aggregates as soon as so many uploads have come; 0: in every round, whatever arrived.
    """

    drop_out: float = 0.0
    stragglers: float = 0.0
    join_late: float = 0.0
    join_round: int = 0
    leave: float = 0.0
    leave_round: int = 0
    upload_delay: int = 0
    buffer: int = 0

    @property
    def asynchronous(self) -> bool:
        """Whether uploads of one round are aggregated in another."""
        return bool(self.upload_delay or self.buffer)

    @property
    def none(self) -> bool:
        """Whether there are none of them."""
        return not (self.drop_out or self.stragglers or self.join_late or self.leave or self.asynchronous)


NO_CONDITIONS = Conditions()
_REMEMBERED = 64  # rounds whose attendance is not drawn again: those of a block of captured rounds, and more


@dataclass(frozen=True, eq=False)
class RoundAttendance:
    """Who is there in one round.

    Attributes:
        participants: [n] the clients that receive the download and train, in rising order; at least one, unless all are still
            waiting for their uploads to come.
        arrived: [k] those of them whose uploads arrive, in rising order; may be none.
        efforts: the share of its training steps that a straggler among them does, by its number; at least one step.
        arrives: [n] the round in which each participant's upload comes.
    """

    participants: Tensor
    arrived: Tensor
    efforts: Mapping[int, float] = field(default_factory=dict)
    arrives: Tensor | None = None


class Attendance:
    """The attendance of all rounds of one training.

    Where no upload of a round arrives, the server has nothing to aggregate: it keeps its state, and in the next round it sends
    the same download to the same clients.

    Args:
        seed, clients: the training's seed and its number of clients, M.
        participation: share of the clients that are there that take part in a round.
        conditions: what happens to them.
        steps: the training steps of a client in a round, by which a straggler's are counted.
    """

    def __init__(
        self, seed: int, clients: int, participation: float, conditions: Conditions, steps: Callable[[int], int]
    ) -> None:
        self.seed, self.clients, self.participation = seed, clients, participation
        self.conditions, self.steps = conditions, steps
        everyone = np.arange(clients)
        self.late = self._group(everyone, conditions.join_late, "join late")
        self.leavers = self._group(np.setdiff1d(everyone, self.late), conditions.leave, "leave")
        self._heard: list[Tensor] = []  # from round 0 on
        self._known: list[RoundAttendance] = []  # from round 0 on, where a round depends on the one before
        self._remembered = lru_cache(_REMEMBERED)(self._drawn)

    @property
    def complete(self) -> bool:
        """Whether all clients take part in every round, do all their work, and all their uploads arrive."""
        return self.participation == 1 and self.conditions.none

    def joined(self, round: int) -> Tensor | None:
        """[M] bool: who has joined, left or not; None: everyone."""
        if round >= self.conditions.join_round or not len(self.late):
            return None
        out = torch.ones(self.clients, dtype=torch.bool)
        out[torch.from_numpy(self.late)] = False
        return out

    def members(self, round: int) -> np.ndarray:
        """[m] the clients that have joined and have not left, in rising order."""
        away = [self.late] if round < self.conditions.join_round else []
        away += [self.leavers] if round >= self.conditions.leave_round else []
        everyone = np.arange(self.clients)
        return np.setdiff1d(everyone, np.concatenate(away)) if away else everyone

    def at(self, round: int) -> RoundAttendance:
        """Who is there in a round."""
        if self.complete:
            everyone = torch.arange(self.clients)
            return RoundAttendance(everyone, everyone)
        if not (self.conditions.drop_out or self.conditions.upload_delay):
            return self._remembered(round)
        while len(self._known) <= round:  # whom the server asks depends on whether anything of the round before arrived
            self._known.append(self._drawn(len(self._known)))
        return self._known[round]

    def heard(self, round: int) -> Tensor:
        """[h] the clients of which an upload arrived in this round or before, in rising order."""
        while len(self._heard) <= round:
            before = self._heard[-1] if self._heard else torch.empty(0, dtype=torch.int64)
            new = self.at(len(self._heard)).arrived
            self._heard.append(before if len(before) == self.clients else torch.cat([before, new]).unique())
        return self._heard[round]

    def _drawn(self, round: int) -> RoundAttendance:
        efforts = self._efforts(round)
        synchronous = not self.conditions.asynchronous
        before = self._known[round - 1] if self.conditions.drop_out and round and synchronous else None
        if before is not None and not len(before.arrived):
            here = before.participants
        else:
            members = torch.from_numpy(self.members(round))
            asked = members[participants(self.seed, round, len(members), self.participation)]
            busy = self._busy(round)
            free = [m for m in asked.tolist() if m not in busy]
            working = [m for m in free if self._taken(efforts, m, round) > 0]
            # Where nobody gets anywhere the server waits for the one that gets farthest.
            slow = [max(free, key=efforts.__getitem__)] if free and not working else []
            here = torch.tensor(working or slow, dtype=torch.int64)
        mine = {m: efforts[m] for m in here.tolist() if m in efforts}
        return RoundAttendance(
            here, here[~torch.from_numpy(self._lost(round))[here]], mine, round + self._delays(round)[here]
        )

    def _busy(self, round: int) -> set[int]:
        """The clients whose uploads of earlier rounds have not come before this one."""
        earlier = self._known[max(0, round - self.conditions.upload_delay) : round]
        pairs = ((here.participants.tolist(), here.arrives.tolist()) for here in earlier if here.arrives is not None)
        return {m for clients, rounds in pairs for m, comes in zip(clients, rounds, strict=True) if comes >= round}

    def _delays(self, round: int) -> Tensor:
        """[M] how many rounds an upload of this round would take."""
        if not self.conditions.upload_delay:
            return torch.zeros(self.clients, dtype=torch.int64)
        drawn = numpy_stream(self.seed, "server", "delays", round)
        return torch.from_numpy(drawn.integers(0, self.conditions.upload_delay + 1, self.clients))

    def _taken(self, efforts: Mapping[int, float], client: int, round: int) -> int:
        """The training steps that a client does in a round."""
        return math.floor(efforts.get(client, 1.0) * self.steps(round))

    def _efforts(self, round: int) -> dict[int, float]:
        """The share of its work that each straggler of a round does, by its number."""
        if not self.conditions.stragglers:
            return {}
        chance, share = numpy_stream(self.seed, "server", "stragglers", round).random((2, self.clients))
        return {m: float(share[m]) for m in np.flatnonzero(chance < self.conditions.stragglers).tolist()}

    def _lost(self, round: int) -> np.ndarray:
        """[M] bool: whose uploads would be lost in a round."""
        if not self.conditions.drop_out:
            return np.zeros(self.clients, dtype=bool)
        return numpy_stream(self.seed, "server", "drop-outs", round).random(self.clients) < self.conditions.drop_out

    def _group(self, among: np.ndarray, share: float, name: str) -> np.ndarray:
        """round(share M) of the clients `among`, in rising order, at least one and not all of them; none where share is 0."""
        if not share:
            return among[:0]
        if len(among) < 2:
            raise FedquiltError(
                f"With {self.clients} clients there are too few for some to join late or leave and others to stay; use more "
                "clients, or leave out join_late and leave."
            )
        count = min(max(1, round(share * self.clients)), len(among) - 1)
        return np.sort(numpy_stream(self.seed, name).choice(among, count, replace=False))
