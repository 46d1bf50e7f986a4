"""The round loop: train round after round, record each, save checkpoints, stop. The same for every method and every engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedquilt.devices.cuda_graph import CudaGraphCache
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message
from fedquilt.methods.base import Method, State
from fedquilt.training.captured_rounds import CapturedRounds
from fedquilt.training.checkpointing import Checkpointer
from fedquilt.training.device_attendance import can_be_captured
from fedquilt.training.engines.base import EVALUATION_FIELDS, ComputesEveryone, Engine, Evaluation
from fedquilt.training.plan import BEST, SIMILARITY_ROUNDS, Plan
from fedquilt.training.progress import BestRound, Progress, none_if_nan
from fedquilt.training.round import Aggregate, RoundRunner
from fedquilt.training.round_result import RoundResult, mean
from fedquilt.training.round_store import Record, RoundStore
from fedquilt.training.stop import StopRun
from fedquilt.training.upload_transforms import UploadTransform


class Training:
    """One training with one seed. `run` trains to the end, from the start or from a checkpoint.

    Args:
        method, engine, plan: what is trained, where, and how long.
        store: where records and checkpoints are written; None: nowhere.
        on_round: called with the record of every round; it may raise `StopRun`.
        upload_transforms: applied in order to all uploads before they are aggregated.
        wrap_aggregate: makes the server's step of the method's, as one that refuses what is not finite.
        cuda_graphs: capture rounds in CUDA graphs where the engine and the method allow it.

    Attributes:
        records: one for each round done.
        findings: the method's findings after the last round (`Method.findings`).
        captured_rounds: trains whole rounds as CUDA graphs, where that is possible; else None.
        stop: why the training stopped before its end, where `on_round` asked for it.
    """

    def __init__(
        self,
        method: Method,
        engine: Engine,
        plan: Plan,
        store: RoundStore | None = None,
        on_round: Callable[[Record], None] | None = None,
        upload_transforms: Sequence[UploadTransform] = (),
        wrap_aggregate: Callable[[Aggregate], Aggregate] | None = None,
        cuda_graphs: bool = True,
    ) -> None:
        self.method, self.engine, self.store = method, engine, store
        self.plan = plan.for_phases(method.total_rounds(plan.rounds))
        self.on_round = on_round or (lambda record: None)
        self.metric = method.task.metric(method.context.metric)
        self.progress = Progress(best=BestRound(val=self.metric.worst))
        self.runner = RoundRunner(method, engine, self.plan, upload_transforms, wrap_aggregate)
        self.captured_rounds: CapturedRounds | None = None
        if cuda_graphs and self._can_capture():
            if not self.runner.attendance.complete:
                self.runner.compute_everyone()
            if method.host_server:  # the server reads values, so only the clients' part can be captured
                self.runner.capture_clients(CudaGraphCache[tuple[Message, Evaluation | None]]())
            else:
                self.captured_rounds = CapturedRounds(self.runner, self.progress)
        self.records: list[Record] = []
        self.stop: StopRun | None = None
        self.findings: dict[str, Tensor] = {}
        self._similarities: dict[int, Tensor] = {}
        self.checkpointer = (
            None
            if store is None
            else Checkpointer(store, plan.checkpoint_seconds, self.runner, self.progress, self._similarities)
        )

    def _can_capture(self) -> bool:
        """Whether rounds do the same work every time, which a CUDA graph requires."""
        attendance = self.runner.attendance
        everyone = attendance.complete or (can_be_captured(attendance) and isinstance(self.engine, ComputesEveryone))
        # A user's module draws random numbers of its own; batches are other parts of the graphs in every step.
        together = not getattr(self.method, "one_by_one", False) and not self.method.context.batch_nodes
        alike = everyone and together and self.plan.rounds > 1 and not self.runner.upload_transforms
        return self.engine.supports_cuda_graphs and alike

    @property
    def captured(self) -> str | None:
        """What CUDA graphs hold: "rounds", "clients", or "nothing: " and why; None where nothing is captured.

        summary.json has it under "recorded".
        """
        graphs = self.runner.client_graphs if self.captured_rounds is None else self.captured_rounds.graphs
        if graphs is None:
            return None
        if graphs.failure is not None:
            return f"nothing: {graphs.failure}"
        return "clients" if self.captured_rounds is None else "rounds"

    @property
    def server(self) -> State:
        """The server's state."""
        return self.runner.server

    @property
    def down(self) -> Message:
        """The download of the next round."""
        return self.runner.down

    @property
    def similarities(self) -> dict[int, Tensor]:
        """The similarity between clients after some rounds, and under `BEST` that of the best round."""
        best = self.progress.best.similarity
        return self._similarities if best is None else self._similarities | {BEST: best}

    def run(self) -> Progress:
        """Train to the end, from the newest checkpoint if there is one."""
        self._resume()
        while not self.complete and self.stop is None:
            self._train_some_rounds(self.plan.rounds)
        if not self.complete and self.records:
            self.save()
        self.findings = self._compute_findings()
        return self.progress

    @property
    def complete(self) -> bool:
        """Whether all rounds are done, or patience is exhausted."""
        exhausted = self.plan.patience_exhausted(self.progress.next_round, self.progress.best.round)
        return self.progress.next_round >= self.plan.rounds or exhausted

    def advance(self, rounds: int) -> None:
        """Train so many rounds further and read their metrics."""
        until = self.progress.next_round + rounds
        while self.progress.next_round < until:
            self._train_some_rounds(until)

    def save(self) -> None:
        """Save a checkpoint, if there is a store."""
        if self.checkpointer is not None:
            self.checkpointer.save()

    def _resume(self) -> None:
        """Restore the newest checkpoint; later rounds are trained again."""
        if self.store is None or self.checkpointer is None or not self.checkpointer.restore():
            return
        self.records = self.store.records()
        for record in self.records:
            self._tell(record)

    def _tell(self, record: Record) -> None:
        """Call `on_round`; a stop that it asks for waits until engine and server are in the state after the last record."""
        try:
            self.on_round(record)
        except StopRun as stop:
            self.stop = stop

    def _train_some_rounds(self, until: int) -> None:
        """Train one round and record it; with CUDA graphs of whole rounds, a block of rounds before `until`."""
        began, first = time.perf_counter(), self.progress.next_round
        if first == 0 and not self.runner.attendance.complete:
            self.engine.evaluate()  # until they first take part, clients are reported with their initial models
        if self.captured_rounds is None:
            results = [self._train_one_round(first)]
        else:
            stop = min(until, self.plan.next_decision(first, self.progress.best.round))
            results = self.captured_rounds.train(first, stop)
        seconds = (time.perf_counter() - began) / len(results)
        for result in results:
            self._record(result, seconds)
            # Engine and server are in the state after the last round of a block, so only that one can be saved.
            if self.checkpointer is not None and result is results[-1]:
                self.checkpointer.save_if_due()
            self._tell(self.records[-1])

    def _train_one_round(self, round: int) -> RoundResult:
        """Run a round, read its metrics, and keep the models if they are the best so far."""
        if (graphs := self.runner.client_graphs) is not None and graphs.failure is not None:
            self.runner.seats = None
        self.runner.prepare(round)
        output = self.runner.run(round)
        if output.evaluation is None:
            return output.read()
        val = float(mean(output.evaluation.val)) * self.metric.scale
        better = self.metric.better(val, self.progress.best.val) or (math.isnan(val) and self._no_val_yet)
        better = better and self.runner.attendance.joined(round) is None  # before, it is a mean over other clients
        if better:
            self.runner.keep_best(self.progress.best)
        return output.read(val, better)

    @property
    def _no_val_yet(self) -> bool:
        """No validation metric received; sites may withhold it. Then the newest models count as the best."""
        return self.engine.clients_are_private and math.isinf(self.progress.best.val)

    def _record(self, result: RoundResult, seconds: float) -> None:
        """Update the progress and append the round's record."""
        everyone = len(result.participants) == self.method.context.clients
        record: Record = {
            "round": result.round,
            "participants": "all" if everyone else result.participants.tolist(),
            "bytes_up": result.bytes_up,
            "bytes_down": result.bytes_down,
        }
        record |= self._attendance_entries(result.round)
        if len(self.method.phases(self.method.context.rounds)) > 1:
            record["phase"] = self.method.phase(result.round)[0].name
        if result.metrics is not None:
            record |= self._metric_entries(result, result.metrics)
        if result.diagnostics:
            record["diagnostics"] = {
                name: value if math.isfinite(value) else None for name, value in result.diagnostics.items()
            }
        for transform in self.runner.upload_transforms:
            record |= transform.record_entries(result.round)
        record |= self.engine.reported
        record["seconds"] = seconds
        record["timings"] = self._timings(seconds)
        progress = self.progress
        progress.next_round = result.round + 1
        progress.upload_bytes += sum(result.bytes_up.values())
        progress.download_bytes += sum(result.bytes_down.values())
        progress.seconds += seconds
        self.records.append(record)
        if self.store is not None:
            self.store.append(record)

    def _attendance_entries(self, round: int) -> Record:
        """Whose uploads of a round were lost, and which share of their work stragglers did, where there are any."""
        if self.plan.conditions.none:
            return {}
        here = self.runner.attendance.at(round)
        lost = sorted(set(here.participants.tolist()) - set(here.arrived.tolist()))
        efforts = {str(m): share for m, share in here.efforts.items()}
        stale = self.runner.staleness
        buffered = {} if stale is None else {"aggregated": len(stale), "staleness": float(stale.double().mean())}
        return ({"lost": lost} if lost else {}) | ({"stragglers": efforts} if efforts else {}) | buffered

    def _timings(self, seconds: float) -> dict[str, float]:
        """The seconds of a round by what was done: train and evaluate at the clients, aggregate at the server, and the rest.

        Where the engine does not measure them apart, as on an accelerator, there is "round" alone.
        """
        known = dict(self.engine.timings)
        if not known:
            return {"round": seconds}
        known["aggregate"] = self.runner.aggregate_seconds
        return known | {"rest": max(0.0, seconds - sum(known.values()))}

    def _metric_entries(self, result: RoundResult, metrics: Tensor) -> Record:
        """The metrics of a round's record; updates the best round. `metrics` [5, M] is on the CPU."""
        evaluation = Evaluation(*metrics)
        evaluation.check_finite()
        if math.isnan(result.val) and not self.engine.clients_are_private:
            raise FedquiltError(
                f"No client has a validation node on which {self.method.context.metric} is defined; choose another split."
            )
        means = dict(zip(EVALUATION_FIELDS, mean(metrics).tolist(), strict=True))
        test = means["test"] * self.metric.scale
        clients = {"val": self.metric.shown(evaluation.val), "test": self.metric.shown(evaluation.test)}
        if result.better:
            best = self.progress.best
            val = self.metric.worst if math.isnan(result.val) else result.val
            best.round, best.val, best.test, best.clients_test = result.round, val, test, clients["test"]
        if result.round in SIMILARITY_ROUNDS:
            similarity = self.method.similarity(self.server)
            if similarity is not None:
                self._similarities[result.round] = similarity.cpu().clone()
        return {
            "val": none_if_nan(result.val),
            "test": none_if_nan(test),
            "train_loss": none_if_nan(means["train_loss"]),
            "val_loss": none_if_nan(means["val_loss"]),
            "clients": clients,
        }

    def _compute_findings(self) -> dict[str, Tensor]:
        """The method's findings, on the CPU; none where clients are private."""
        has_findings = type(self.method).findings is not Method.findings  # else do not copy all clients' states
        if self.engine.clients_are_private or not has_findings:
            return {}
        with torch.no_grad():
            found = self.method.findings(self.server, self.engine.state())
        return {name: tensor.detach().cpu() for name, tensor in found.items()}
