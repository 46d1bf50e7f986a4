"""Whole rounds in CUDA graphs, in blocks of up to `BLOCK_ROUNDS`.

Reading a metric makes the host wait for the device. So the metrics of a block of rounds stay on the device and are read
together, and the device also decides which models are the best. Every round but the first with its key is a CUDA graph
(`fedquilt.devices.cuda_graph`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedquilt.devices.cuda_graph import CudaGraphCache
from fedquilt.training.engines.base import EVALUATION_FIELDS
from fedquilt.training.progress import Progress
from fedquilt.training.round import RoundRunner
from fedquilt.training.round_result import RoundOutput, RoundResult, mean

BLOCK_ROUNDS = 32  # rounds between two reads, at most
BYTE_COUNTS = 64  # messages of a round whose bytes depend on values, at most
DIAGNOSTICS = 32  # diagnostics of a round, at most


class CapturedRounds:
    """Trains blocks of rounds in which all clients take part, or all compute.

    Attributes:
        graphs: the CUDA graphs of whole rounds.
    """

    def __init__(
        self, runner: RoundRunner, progress: Progress, graphs: CudaGraphCache[RoundOutput] | None = None
    ) -> None:
        self.runner, self.progress = runner, progress
        self.graphs = CudaGraphCache[RoundOutput]() if graphs is None else graphs
        runner.fixed_addresses = True
        context = runner.method.context
        self.metric = runner.method.task.metric(context.metric)
        device = runner.engine.device
        # One row for each round of a block; `_row` is the next one.
        self._metrics = torch.zeros(BLOCK_ROUNDS, len(EVALUATION_FIELDS), context.clients, device=device)
        self._val = torch.zeros(BLOCK_ROUNDS, device=device, dtype=torch.float64)
        self._better = torch.zeros(BLOCK_ROUNDS, device=device, dtype=torch.bool)
        self._counts = torch.zeros(BLOCK_ROUNDS, BYTE_COUNTS, device=device, dtype=torch.int64)
        self._diagnostics = torch.zeros(BLOCK_ROUNDS, DIAGNOSTICS, device=device)
        self._row = torch.zeros(1, device=device, dtype=torch.int64)
        self._best_val = torch.zeros((), device=device, dtype=torch.float64)

    def train(self, first: int, stop: int) -> list[RoundResult]:
        """Train the rounds first .. stop - 1, at most one block of them, and read their results."""
        self._best_val.fill_(self.progress.best.val)
        self._row.zero_()
        outputs = [self._output(round) for round in range(first, min(stop, first + BLOCK_ROUNDS))]
        return self._read(first, outputs)

    def _output(self, round: int) -> RoundOutput:
        if self.graphs.failure is not None:
            self.runner.seats = None  # what cannot be captured is faster with the participants alone
        self.runner.prepare(round)
        output = self.graphs(self.runner.graph_key(round), partial(self._round, round))
        self.runner.down = output.down  # a replay writes it, and does not say so to Python
        return output

    def _round(self, round: int) -> RoundOutput:
        """Run a round, write its metrics to the next row, and keep its models if they are the best so far."""
        server = self.runner.server
        addresses = dict(server)
        try:
            output = self.runner.run(round)
            if output.evaluation is not None:
                val = mean(output.evaluation.val) * self.metric.scale
                better = self.metric.better(val, self._best_val)
                if self.runner.attendance.joined(round) is not None:
                    better = torch.zeros_like(better)  # it is a mean over other clients than later
                self.runner.keep_best(self.progress.best, better)
                self._write(self._metrics, output.evaluation.stacked())
                self._write(self._val, val)
                self._write(self._better, better)
                self._best_val.copy_(torch.where(better, val, self._best_val))
            counts = output.counts_on_device()
            if counts:
                self._write(self._counts[:, : len(counts)], torch.stack(counts))
            if output.diagnostics:
                found = torch.stack([value.float() for value in output.diagnostics.values()])
                self._write(self._diagnostics[:, : len(found)], found)
            self._row += 1
        finally:
            # A method may replace a tensor of the server's state; a CUDA graph reads from the old one, so copy it back.
            for name, tensor in addresses.items():
                new, server[name] = server[name], tensor
                if new is not tensor:
                    tensor.copy_(new)
        return output

    def _write(self, rows: Tensor, value: Tensor) -> None:
        rows.index_copy_(0, self._row, value.unsqueeze(0))

    def _read(self, first: int, outputs: Sequence[RoundOutput]) -> list[RoundResult]:
        metrics, val, better, counts = (t.cpu() for t in (self._metrics, self._val, self._better, self._counts))
        diagnostics = self._diagnostics.tolist()
        self.runner.engine.forget()  # the next round overwrites the models that the engine remembers
        results = []
        for row, output in enumerate(outputs):
            evaluated = output.evaluation is not None
            read = iter(counts[row].tolist())
            up, down = (
                {name: next(read) if isinstance(count, Tensor) else count for name, count in side.items()}
                for side in (output.bytes_up, output.bytes_down)
            )
            results.append(
                RoundResult(
                    round=first + row,
                    participants=self.runner.attendance.at(first + row).arrived,
                    bytes_up=up,
                    bytes_down=down,
                    metrics=metrics[row] if evaluated else None,
                    diagnostics=dict(zip(output.diagnostics, diagnostics[row], strict=False)),
                    val=float(val[row]),
                    better=evaluated and bool(better[row]),
                )
            )
        return results
