"""Who takes part in a round, in tensors on the device whose addresses stay: what a CUDA graph of rounds without everyone reads.

The clients of a round form a cohort whose matrices have other sizes in every round, and a CUDA graph is fixed kernels on fixed
memory. So all clients compute in a captured round, and those who sit out keep their states. Their numbers [n], and those of the
senders and of the next round's receivers, are written into the same memory before each replay; rounds with as many of each
share a CUDA graph. Who takes part is drawn as ever (`fedquilt.training.attendance`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from fedquilt.messages.message import Message, TensorSpec, Value, declared, dense
from fedquilt.messages.slicing import same_kind
from fedquilt.training.attendance import Attendance

LEAST_SHARE = 0.1  # below, so many clients would compute for nothing that rounds of the participants alone are faster


def can_be_captured(attendance: Attendance) -> bool:
    """Whether rounds have few different shapes if all clients compute, and enough of them take part for that to pay.

    Stragglers take other steps in every round, and uploads that are late are kept in a buffer of any length.
    """
    conditions = attendance.conditions
    return attendance.participation >= LEAST_SHARE and not (conditions.stragglers or conditions.asynchronous)


class DeviceAttendance:
    """The attendance of one round at a time.

    Args:
        attendance: who takes part in which round.
        device: of the clients. server_device: of the server's state.
        newest: whether the server aggregates the newest uploads of all who ever sent one.

    Attributes:
        at_work: [M] bool: who takes part.
        joined: [M] bool: who has joined, left or not.
        participants, arrived: [n], [k] their numbers, and those whose uploads arrive; on the clients' device.
        senders, receivers: [k], [r] whose uploads arrive, and who takes part in the next round; on the server's.
        heard: [h] whose uploads arrived in this round or before; on the server's, and only with `newest`.
    """

    def __init__(
        self, attendance: Attendance, device: torch.device, server_device: torch.device, newest: bool = False
    ) -> None:
        self.attendance, self.device, self.server_device, self.newest = attendance, device, server_device, newest
        self.at_work = torch.zeros(attendance.clients, dtype=torch.bool, device=device)
        self.joined = torch.ones(attendance.clients, dtype=torch.bool, device=device)
        self.participants = self.arrived = self.senders = self.receivers = torch.empty(0, dtype=torch.int64)
        self.heard = self.senders
        self._memory: dict[tuple[str, int], Tensor] = {}

    def key(self, round: int) -> Hashable:
        """Rounds with equal keys have as many participants, senders and receivers (and clients that were ever heard, where the
        server aggregates what they sent last), and everyone has joined or not in each."""
        here, after = self.attendance.at(round), self.attendance.at(round + 1)
        counts = len(here.participants), len(here.arrived), len(after.participants)
        heard = len(self.attendance.heard(round)) if self.newest else None
        return (*counts, heard, self.attendance.joined(round) is None)

    def set(self, round: int) -> None:
        """Write who takes part in a round."""
        here, after = self.attendance.at(round), self.attendance.at(round + 1)
        self.participants = self._written("participants", here.participants, self.device)
        self.arrived = self._written("arrived", here.arrived, self.device)
        self.senders = self._written("senders", here.arrived, self.server_device)
        self.receivers = self._written("receivers", after.participants, self.server_device)
        if self.newest:
            self.heard = self._written("heard", self.attendance.heard(round), self.server_device)
        self.at_work.zero_().index_fill_(0, self.participants, True)
        joined = self.attendance.joined(round)
        if joined is not None:
            self.joined.copy_(joined, non_blocking=True)

    def for_everyone(self, down: Message, specs: Sequence[TensorSpec]) -> Message:
        """A download for the participants [n, ...] with a row for every client, [M, ...]: zeros of those who sit out."""

        def spread(name: str, value: Value) -> Value:
            spec = declared(specs, name)
            if spec is not None and spec.shared:
                return value
            rows = dense(value)
            everyone = rows.new_zeros(len(self.at_work), *rows.shape[1:])
            return same_kind(value, everyone.index_copy_(0, self.participants, rows))

        return {name: spread(name, value) for name, value in down.items()}

    def _written(self, name: str, numbers: Tensor, device: torch.device) -> Tensor:
        """The numbers in the memory that tensors of this name and length have."""
        there = self._memory.get((name, len(numbers)))
        if there is None:
            there = self._memory[name, len(numbers)] = torch.empty_like(numbers, device=device)
        return there.copy_(numbers, non_blocking=True)  # else the host waits for the round before
