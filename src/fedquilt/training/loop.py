"""The round loop: select, exchange, evaluate, checkpoint, stop. The same for every method and every engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedquilt.devices import offload
from fedquilt.devices.cuda_graph import CudaGraphCache
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import (
    Factored,
    Message,
    Sparse,
    Value,
    check,
    each_tensor,
    message_bytes_on_device,
    moved,
)
from fedquilt.methods.base import Method, State
from fedquilt.privacy.dp import Protection
from fedquilt.runs.folder import SeedFolder
from fedquilt.scenarios.attacks import Attack
from fedquilt.training.client_sampling import participants
from fedquilt.training.engines.base import EVALUATION_FIELDS, Engine, Evaluation
from fedquilt.training.round_blocks import RoundBlocks
from fedquilt.training.round_result import RoundOutput, RoundResult, mean

Record = dict[str, Any]
# As `Method.aggregate`: the server's state, uploads, senders and receivers to downloads.
Aggregate = Callable[[State, Message, Tensor, Tensor], Message]
K = TypeVar("K")
# Rounds after which the similarity between clients is noted, beside the best round's (under the key BEST).
SIMILARITY_ROUNDS = (0, 4, 9, 19, 49, 99, 199)
BEST = -1


@dataclass(frozen=True)
class Plan:
    """How long and with whom.

    Attributes:
        rounds: communication rounds at most.
        participation: share of the clients in each round.
        evaluate_every: rounds between evaluations (the last round is always evaluated).
        patience: stop after so many rounds without a better validation metric; None: never.
        checkpoint_seconds: seconds between checkpoints.
    """

    rounds: int
    participation: float = 1.0
    evaluate_every: int = 1
    patience: int | None = None
    checkpoint_seconds: float = 30.0


@dataclass
class Best:
    """The round with the best mean validation metric so far, and the personal models of that round."""

    round: int = -1
    val: float = -math.inf
    test: float = math.nan
    clients_test: list[float | None] = field(default_factory=list)
    models: State = field(default_factory=dict)


@dataclass
class Progress:
    """Where a training stands: all that is needed to go on, beside what the engine and the server keep."""

    next_round: int = 0
    seconds: float = 0.0
    upload_bytes: int = 0
    download_bytes: int = 0
    best: Best = field(default_factory=Best)

    def summary(self, seed: int, metric: str | None) -> dict[str, Any]:
        """What any training's summary.json says."""
        return {
            "seed": seed,
            "best_round": self.best.round,
            "val": self.best.val,
            "test": none_if_nan(self.best.test),
            "seconds": self.seconds,
            "seconds_per_round": self.seconds / max(1, self.next_round),
            "upload_bytes": self.upload_bytes,
            "download_bytes": self.download_bytes,
            "metric": metric,
            "rounds_run": self.next_round,
            "clients_test": self.best.clients_test,
        }


class Training:
    """One training of one seed: `run` carries it to the end, from the start or from a checkpoint.

    With a `protection`, uploads leave clients clipped and noised; with an `attack`, the server gets them as it leaves them;
    with `aggregate`, that is done with them instead of what the method does.
    """

    def __init__(
        self,
        method: Method,
        engine: Engine,
        plan: Plan,
        folder: SeedFolder | None = None,
        on_round: Callable[[Record], None] | None = None,
        attack: Attack | None = None,
        protection: Protection | None = None,
        aggregate: Aggregate | None = None,
    ) -> None:
        self.method, self.engine, self.plan, self.folder, self.attack = method, engine, plan, folder, attack
        self.aggregate = aggregate or method.aggregate
        self.protection = protection
        self.on_round = on_round or (lambda record: None)
        self.rounds = 1 if method.single_round else plan.rounds
        self.metric = method.task.metric(method.context.metric)
        self.progress = Progress(best=Best(val=self.metric.worst))
        self._server_device = torch.device("cpu") if method.host_server else engine.device
        self._everyone: Tensor | None = None
        server, down = method.server_start()
        self.server, self.down = moved_state(server, self._server_device), moved(down, engine.device)
        # On an accelerator rounds are recorded: whole, or, where the server has to look at the numbers, what clients do.
        steady = engine.records and plan.participation == 1 and attack is None and protection is None
        steady = steady and not method.single_round
        self.blocks = RoundBlocks(self) if steady and not method.host_server else None
        self.recorder = CudaGraphCache[tuple[Message, Evaluation | None]]() if steady and method.host_server else None
        self.records: list[Record] = []
        self.similarities: dict[int, Tensor] = {}
        self.findings: dict[str, Tensor] = {}
        self._at_server = 0.0
        self._saved_at = time.monotonic()
        self._save_after = plan.checkpoint_seconds

    @property
    def recorded(self) -> str | None:
        """What of a round is recorded and replayed: "rounds", "clients", or "nothing: " and why; None where nothing ever is."""
        recorder = self.recorder if self.blocks is None else self.blocks.recorder
        if recorder is None:
            return None
        if recorder.refused is not None:
            return f"nothing: {recorder.refused}"
        return "clients" if self.blocks is None else "rounds"

    def run(self) -> Progress:
        """Train to the end and return how it went."""
        self._resume()
        if self.plan.participation < 1 and self.progress.next_round == 0:
            self.engine.evaluate()  # clients that sit out the first rounds count with the model they start from
        while self.progress.next_round < self.rounds and not self._tired():
            self._some_rounds(self.rounds)
        self.findings = self._find()
        return self.progress

    def advance(self, rounds: int) -> None:
        """Train so many rounds further; when it returns, their figures have been read."""
        until = self.progress.next_round + rounds
        while self.progress.next_round < until:
            self._some_rounds(until)

    def _some_rounds(self, until: int) -> None:
        """Train at least a round and note what came of it; on an accelerator up to `until`, or until someone has to look."""
        began, first = time.perf_counter(), self.progress.next_round
        seen = (
            [self.look(self.exchange(first))]
            if self.blocks is None
            else self.blocks.train(first, min(until, self._look_at(first)))
        )
        seconds = (time.perf_counter() - began) / len(seen)
        for one in seen:
            self._note(one, seconds, last=one is seen[-1])

    def _look_at(self, first: int) -> int:
        """The round before which someone has to look: patience may be at its end, or similarities are due."""
        best, patience = self.progress.best, self.plan.patience
        due = [r + 1 for r in SIMILARITY_ROUNDS if r >= first][:1]
        if patience is not None:
            every = self.plan.evaluate_every
            since = best.round if best.round >= 0 else (first // every + 1) * every - 1  # the first round with figures
            due.append(since + patience + 1)
        return max(first + 1, min(due, default=self.rounds))

    def evaluates(self, round: int) -> bool:
        """Whether clients are evaluated after this round."""
        return (round + 1) % self.plan.evaluate_every == 0 or round == self.rounds - 1

    def exchange(self, round: int) -> RoundOutput:
        """A round: down, local training, up, and what the server makes of it. Nobody looks at the numbers yet."""
        method, context, share = self.method, self.method.context, self.plan.participation
        here = participants(context.seed, round, context.clients, share)
        check(self.down, method.downloads, method.name, "download")
        bytes_down = message_bytes_on_device(self.down, method.downloads, len(here))
        uploads, report = self._clients(round, here)
        senders = here if self.engine.answered is None else self.engine.answered
        if self.protection is not None:
            uploads = self.protection.applied(uploads, method.uploads, round, senders, self.down)
        if self.attack is not None:
            uploads = self.attack.applied(uploads, senders, round)
        bytes_up = message_bytes_on_device(uploads, method.uploads, len(senders))
        began = time.perf_counter()
        if round + 1 < self.rounds:
            self._take(self.aggregate(self.server, uploads, *self._numbers(round, senders)))
        self._at_server = time.perf_counter() - began
        return RoundOutput(round, senders, bytes_up, bytes_down, report)

    def _clients(self, round: int, here: Tensor) -> tuple[Message, Evaluation | None]:
        """What the clients do in a round; recorded by itself where the server has to look."""
        evaluate = self.evaluates(round)
        step = partial(self.engine.round, round, here, self.down, evaluate)
        return step() if self.recorder is None else self.recorder(self.kind(round), step)

    def kind(self, round: int) -> Hashable:
        """Rounds of one kind do the same to the same memory."""
        last = round == self.rounds - 1
        where = tuple(tensor.data_ptr() for value in self.down.values() for tensor in each_tensor(value))
        return round == 0, last, self.method.round_kind(round), self.evaluates(round), tuple(self.down), where

    def _numbers(self, round: int, senders: Tensor) -> tuple[Tensor, Tensor]:
        """Who sent something in this round and who takes part in the next, where the server is.

        The same tensor, and always the same one, where everyone does both.
        """
        context, share = self.method.context, self.plan.participation
        if self._everyone is not None and len(senders) == context.clients:
            return self._everyone, self._everyone
        here = senders.to(self._server_device)
        there = participants(context.seed, round + 1, context.clients, share).to(self._server_device)
        if len(here) == len(there) == context.clients:
            self._everyone = here
            return here, here
        return here, there

    def _take(self, down: Message) -> None:
        """Keep the next round's download: in the memory of the one before where that is recorded, and fits."""
        recorded = self.blocks is not None or self.recorder is not None
        if not recorded or _shapes(down) != _shapes(self.down):
            self.down = down
            return
        for name, value in down.items():
            for new, old in zip(each_tensor(value), each_tensor(self.down[name]), strict=True):
                if new is not old:
                    old.copy_(new)

    def look(self, exchanged: RoundOutput) -> RoundResult:
        """Read what a round gave, and keep the models when it is the best on validation so far."""
        report, better, val = exchanged.report, False, math.nan
        if report is not None:
            val = float(mean(report.val)) * self.metric.scale
            better = self.metric.better(val, self.progress.best.val) or (math.isnan(val) and self._untold)
            if better:
                self.keep()
        return RoundResult(
            round=exchanged.round,
            participants=exchanged.participants,
            bytes_up={name: int(count) for name, count in exchanged.bytes_up.items()},
            bytes_down={name: int(count) for name, count in exchanged.bytes_down.items()},
            report=None if report is None else report.stacked().cpu(),
            val=val,
            better=better,
        )

    @property
    def _untold(self) -> bool:
        """Whether no client has said yet how it stands, which is its right: then the newest models are the best there are."""
        return self.engine.private and math.isinf(self.progress.best.val)

    def keep(self, better: Tensor | None = None) -> None:
        """Keep the personal models, and the similarity between clients, as those of the best round.

        With `better`, a scalar on the device, only where it is true, without a look at it.
        """
        self._keep(self.progress.best.models, self.engine.personal(), better)
        similarity = self.method.similarity(self.server)
        if similarity is not None:
            self._keep(self.similarities, {BEST: similarity}, better)

    @staticmethod
    def _keep(kept: dict[K, Tensor], now: Mapping[K, Tensor], better: Tensor | None) -> None:
        for name, tensor in now.items():
            new = name not in kept
            if new:
                kept[name] = offload.like(tensor)
            if new or better is None:
                for rows, piece in offload.pieces(kept[name]):
                    offload.release(piece.copy_(tensor[rows]), tensor[rows])
            else:
                torch.where(better, tensor, kept[name], out=kept[name])

    def _note(self, seen: RoundResult, seconds: float, last: bool) -> None:
        """Write down what was seen of a round; a checkpoint only after the last of a block, as which everything stands now."""
        record: Record = {
            "round": seen.round,
            "participants": "all"
            if len(seen.participants) == self.method.context.clients
            else seen.participants.tolist(),
            "bytes_up": seen.bytes_up,
            "bytes_down": seen.bytes_down,
        }
        if seen.report is not None:
            record |= self._measured(seen, seen.report)
        if self.protection is not None:
            record["epsilon"] = self.protection.spent(seen.round)
        record |= self.engine.told
        record["seconds"] = seconds
        record["phases"] = self._phases(seconds)
        progress = self.progress
        progress.next_round = seen.round + 1
        progress.upload_bytes += sum(seen.bytes_up.values())
        progress.download_bytes += sum(seen.bytes_down.values())
        progress.seconds += seconds
        self.records.append(record)
        if self.folder is not None:
            self.folder.append(record)
            if last and time.monotonic() - self._saved_at > self._save_after:
                self.save()
        self.on_round(record)

    def _phases(self, seconds: float) -> dict[str, float]:
        """A round's seconds by what was done: train and evaluate at the clients, aggregate at the server, and the rest.

        Where the engine cannot tell, as on an accelerator, all of it is "round".
        """
        known = dict(self.engine.phases)
        if not known:
            return {"round": seconds}
        known["aggregate"] = self._at_server
        return known | {"rest": max(0.0, seconds - sum(known.values()))}

    def _measured(self, seen: RoundResult, figures: Tensor) -> Record:
        """The record's metrics, and the best round's: figures [5, M] on the CPU."""
        report = Evaluation(*figures)
        report.check_sound()
        if math.isnan(seen.val) and not self.engine.private:
            raise FedquiltError(
                f"No client has a validation node on which {self.method.context.metric} is defined; choose another split."
            )
        means = dict(zip(EVALUATION_FIELDS, mean(figures).tolist(), strict=True))
        test = means["test"] * self.metric.scale
        clients = {"val": self.metric.shown(report.val), "test": self.metric.shown(report.test)}
        if seen.better:
            best = self.progress.best
            val = self.metric.worst if math.isnan(seen.val) else seen.val
            best.round, best.val, best.test, best.clients_test = seen.round, val, test, clients["test"]
        if seen.round in SIMILARITY_ROUNDS:
            similarity = self.method.similarity(self.server)
            if similarity is not None:
                self.similarities[seen.round] = similarity.cpu().clone()
        return {
            "val": none_if_nan(seen.val),
            "test": none_if_nan(test),
            "train_loss": none_if_nan(means["train_loss"]),
            "val_loss": none_if_nan(means["val_loss"]),
            "clients": clients,
        }

    def _find(self) -> dict[str, Tensor]:
        """What the method finds worth looking at now, on the CPU; nothing where clients keep to themselves."""
        if self.engine.private or type(self.method).findings is Method.findings:  # spares a copy of all clients' states
            return {}
        with torch.no_grad():
            found = self.method.findings(self.server, self.engine.state())
        return {name: tensor.detach().cpu() for name, tensor in found.items()}

    def _tired(self) -> bool:
        best, patience = self.progress.best, self.plan.patience
        return patience is not None and best.round >= 0 and self.progress.next_round - 1 - best.round >= patience

    # -- going on after a kill ---------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of everything that determines the rest of the training."""
        if self.folder is None:
            return
        p = self.progress
        groups: Mapping[str, Mapping[str, Tensor]] = {
            "engine": self.engine.state(),
            "server": self.server,
            "down": {f"{n}/{i}": t for n, value in self.down.items() for i, t in enumerate(each_tensor(value))},
            "best": p.best.models,
            "similarity": {str(round): s for round, s in self.similarities.items()},
        }
        tensors = {f"{group}/{name}": t.cpu() for group, named in groups.items() for name, t in named.items()}
        facts = {
            "seconds": p.seconds,
            "upload_bytes": p.upload_bytes,
            "download_bytes": p.download_bytes,
            "best": [p.best.round, p.best.val, p.best.test, p.best.clients_test] if p.best.round >= 0 else None,
            "down": {name: type(value).__name__ for name, value in self.down.items()},
        }
        began = time.monotonic()
        self.folder.checkpoint(p.next_round - 1, tensors, facts)
        self._saved_at = time.monotonic()
        if self.plan.checkpoint_seconds > 0:
            # Large states take long to write: no more than a tenth of the time goes there.
            self._save_after = max(self.plan.checkpoint_seconds, 10 * (self._saved_at - began))

    def _resume(self) -> None:
        """Go on from the newest sound checkpoint, if there is one; rounds after it are forgotten and done again."""
        if self.folder is None:
            return
        saved = self.folder.latest_checkpoint()
        self.folder.truncate_after(saved.round if saved else -1)
        if saved is None:
            return
        groups: dict[str, dict[str, Tensor]] = {}
        for name, tensor in saved.tensors.items():
            group, rest = name.split("/", 1)
            groups.setdefault(group, {})[rest] = tensor
        self.engine.restore(groups["engine"])
        self.server = moved_state(groups.get("server", {}), self._server_device)
        held = groups.get("down", {})
        kinds: dict[str, Callable[..., Value]] = {"Sparse": Sparse, "Factored": Factored}
        down: Message = {}
        for name, kind in saved.facts["down"].items():
            tensors = [tensor for key, tensor in sorted(held.items()) if key.rpartition("/")[0] == name]
            down[name] = kinds[kind](*tensors) if kind in kinds else tensors[0]
        self.down = moved(down, self.engine.device)
        self.similarities = {int(round): s for round, s in groups.get("similarity", {}).items()}
        if BEST in self.similarities:  # goes on being written to
            self.similarities[BEST] = self.similarities[BEST].to(self._server_device)
        facts, p = saved.facts, self.progress
        p.next_round = saved.round + 1
        p.seconds, p.upload_bytes, p.download_bytes = (facts[k] for k in ("seconds", "upload_bytes", "download_bytes"))
        if facts["best"] is not None:
            round, val, test, clients_test = facts["best"]
            models = moved_state(groups.get("best", {}), self.engine.device)
            if any(map(offload.rests, self.engine.state().values())):
                models = {name: offload.copied(tensor) for name, tensor in models.items()}
            val, test = self.metric.worst if val is None else val, math.nan if test is None else test
            p.best = Best(round, val, test, clients_test, models)
        self.records = self.folder.records()
        for record in self.records:
            self.on_round(record)


def _shapes(message: Message) -> dict[str, list[torch.Size]]:
    """The shapes of all tensors of a message."""
    return {name: [tensor.shape for tensor in each_tensor(value)] for name, value in message.items()}


def moved_state(state: Mapping[str, Tensor], device: torch.device) -> State:
    """The same tensors on a device."""
    return {name: tensor.to(device) for name, tensor in state.items()}


def none_if_nan(value: float) -> float | None:
    """NaN as None, which JSON can say."""
    return None if math.isnan(value) else value
