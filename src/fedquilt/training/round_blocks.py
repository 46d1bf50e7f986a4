"""Rounds in blocks: on an accelerator, many rounds go by before anyone looks at their figures.

A look makes the host wait for the device, and the device for the host. So the figures of a block of rounds stay on the device
and are read together; which models are the best is decided there too. Every round but the first of its kind is a recording
(`fedquilt.devices.cuda_graph`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedquilt.devices.cuda_graph import CudaGraphCache
from fedquilt.training.engines.base import EVALUATION_FIELDS
from fedquilt.training.round_result import RoundOutput, RoundResult, mean

if TYPE_CHECKING:
    from fedquilt.training.loop import Training

MOST = 32  # rounds between two looks
COUNTS = 64  # messages of a round whose bytes depend on the numbers in them, at most


class RoundBlocks:
    """The rounds of a training whose every client takes part in every round.

    Attributes:
        recorder: what rounds are recorded by.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.recorder: CudaGraphCache[RoundOutput] = CudaGraphCache()
        device, clients = training.engine.device, training.method.context.clients
        self._figures = torch.zeros(MOST, len(EVALUATION_FIELDS), clients, device=device)
        self._val = torch.zeros(MOST, device=device, dtype=torch.float64)
        self._better = torch.zeros(MOST, device=device, dtype=torch.bool)
        self._counts = torch.zeros(MOST, COUNTS, device=device, dtype=torch.int64)
        self._place = torch.zeros(1, device=device, dtype=torch.int64)
        self._best = torch.zeros((), device=device, dtype=torch.float64)

    def train(self, first: int, stop: int) -> list[RoundResult]:
        """Rounds first .. stop - 1, or as many of them as fit into a block, and what was seen of them."""
        self._best.fill_(self.training.progress.best.val)
        self._place.zero_()
        done = [
            self.recorder(self.training.kind(round), partial(self._round, round))
            for round in range(first, min(stop, first + MOST))
        ]
        return self._read(first, done)

    def _round(self, round: int) -> RoundOutput:
        """A round whose figures are put down at the block's next place."""
        training, server = self.training, dict(self.training.server)
        try:
            exchanged = training.exchange(round)
            if exchanged.report is not None:
                val = mean(exchanged.report.val) * training.metric.scale
                better = training.metric.better(val, self._best)
                training.keep(better)
                self._put(self._figures, exchanged.report.stacked())
                self._put(self._val, val)
                self._put(self._better, better)
                self._best.copy_(torch.where(better, val, self._best))
            counts = [count for count in every_count(exchanged) if isinstance(count, Tensor)]
            if counts:
                self._put(self._counts[:, : len(counts)], torch.stack(counts))
            self._place += 1
        finally:
            # What the server keeps stays where it is, whether a method wrote into it or put something new in its place.
            for name, tensor in server.items():
                new, training.server[name] = training.server[name], tensor
                if new is not tensor:
                    tensor.copy_(new)
        return exchanged

    def _put(self, rows: Tensor, value: Tensor) -> None:
        rows.index_copy_(0, self._place, value.unsqueeze(0))

    def _read(self, first: int, done: Sequence[RoundOutput]) -> list[RoundResult]:
        figures, val, better, counts = (t.cpu() for t in (self._figures, self._val, self._better, self._counts))
        self.training.engine.forget()  # what it holds of personal models is overwritten by the next round
        out = []
        for place, exchanged in enumerate(done):
            evaluated = exchanged.report is not None
            known = iter(counts[place].tolist())
            up, down = (
                {name: next(known) if isinstance(count, Tensor) else count for name, count in side.items()}
                for side in (exchanged.bytes_up, exchanged.bytes_down)
            )
            out.append(
                RoundResult(
                    round=first + place,
                    participants=exchanged.participants,
                    bytes_up=up,
                    bytes_down=down,
                    report=figures[place] if evaluated else None,
                    val=float(val[place]),
                    better=evaluated and bool(better[place]),
                )
            )
        return out


def every_count(exchanged: RoundOutput) -> list[int | Tensor]:
    """The bytes of all messages, uploads first."""
    sides: Sequence[Mapping[str, int | Tensor]] = (exchanged.bytes_up, exchanged.bytes_down)
    return [count for side in sides for count in side.values()]
