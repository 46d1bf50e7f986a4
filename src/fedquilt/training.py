"""The round loop: select, exchange, evaluate, checkpoint, stop. The same for every method and every engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedquilt.attacks import Attack
from fedquilt.engines.contract import Engine, Report
from fedquilt.errors import FedquiltError
from fedquilt.methods.contract import Method, State
from fedquilt.privacy.crossing import Sparse, check, dense, message_bytes
from fedquilt.randomness import numpy_stream
from fedquilt.runs.folder import SeedFolder

Record = dict[str, Any]
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


def participants(seed: int, round: int, clients: int, share: float) -> Tensor:
    """Who takes part in a round: [n] client numbers in rising order, n = ceil(share * clients)."""
    count = max(1, math.ceil(share * clients - 1e-9))
    if count >= clients:
        return torch.arange(clients)
    chosen = numpy_stream(seed, "server", "participants", round).choice(clients, count, replace=False)
    return torch.from_numpy(chosen).sort().values


def some_clients(seed: int, clients: int, share: float, *owner: str) -> Tensor:
    """A group of the clients, drawn for `owner`: [n] numbers in rising order, n = round(share * clients).

    At least one client is in it and at least one is not.
    """
    if clients < 2:
        raise FedquiltError(
            "A single client cannot be parted into two groups; use more clients, and no attack or held-out clients."
        )
    count = min(max(1, round(share * clients)), clients - 1)
    return torch.from_numpy(numpy_stream(seed, *owner).choice(clients, count, replace=False)).sort().values


class Training:
    """One training of one seed: `run` carries it to the end, from the start or from a checkpoint.

    With an `attack`, the server gets the uploads as it leaves them.
    """

    def __init__(
        self,
        method: Method,
        engine: Engine,
        plan: Plan,
        folder: SeedFolder | None = None,
        on_round: Callable[[Record], None] | None = None,
        attack: Attack | None = None,
    ) -> None:
        self.method, self.engine, self.plan, self.folder, self.attack = method, engine, plan, folder, attack
        self.on_round = on_round or (lambda record: None)
        self.rounds = 1 if method.single_round else plan.rounds
        self.progress = Progress()
        self.server, self.down = method.server_start()
        self.records: list[Record] = []
        self.similarities: dict[int, Tensor] = {}
        self.findings: dict[str, Tensor] = {}
        self._saved_at = time.monotonic()

    def run(self) -> Progress:
        """Train to the end and return how it went."""
        self._resume()
        if self.plan.participation < 1 and self.progress.next_round == 0:
            self.engine.evaluate()  # clients that sit out the first rounds count with the model they start from
        while self.progress.next_round < self.rounds and not self._tired():
            self.advance(1)
        self.findings = self._find()
        return self.progress

    def advance(self, rounds: int) -> None:
        """Train so many rounds further; when it returns, their figures have been read."""
        for _ in range(rounds):
            record = self._round(self.progress.next_round)
            self.records.append(record)
            if self.folder is not None:
                self.folder.append(record)
                if time.monotonic() - self._saved_at > self.plan.checkpoint_seconds:
                    self.save()
            self.on_round(record)

    def _round(self, round: int) -> Record:
        began = time.perf_counter()
        plan, task = self.plan, self.method.task
        here = participants(task.seed, round, task.clients, plan.participation)
        evaluate = (round + 1) % plan.evaluate_every == 0 or round == self.rounds - 1
        check(self.down, self.method.downloads, self.method.name, "download")
        bytes_down = message_bytes(self.down, self.method.downloads, len(here))
        uploads, report = self.engine.round(round, here, self.down, evaluate)
        if self.attack is not None:
            uploads = self.attack.applied(uploads, here, round)
        bytes_up = message_bytes(uploads, self.method.uploads, len(here))
        if round + 1 < self.rounds:
            there = participants(task.seed, round + 1, task.clients, plan.participation)
            self.down = self.method.aggregate(self.server, uploads, here, there)
        record: Record = {
            "round": round,
            "participants": "all" if len(here) == task.clients else here.tolist(),
            "bytes_up": bytes_up,
            "bytes_down": bytes_down,
        }
        if report is not None:
            record |= self._measure(round, report)
        progress = self.progress
        progress.next_round = round + 1
        progress.upload_bytes += sum(bytes_up.values())
        progress.download_bytes += sum(bytes_down.values())
        record["seconds"] = time.perf_counter() - began
        progress.seconds += record["seconds"]
        return record

    def _measure(self, round: int, report: Report) -> Record:
        """The record's metrics; keeps the models when this round is the best on validation so far."""
        val, test = mean(report.val) * 100, mean(report.test) * 100
        clients = {"val": percent(report.val), "test": percent(report.test)}
        if math.isnan(val):
            raise FedquiltError(
                f"No client has a validation node on which {self.method.task.metric} is defined; choose another split."
            )
        best = self.progress.best
        if val > best.val:
            now = self.engine.personal()
            for name, tensor in now.items():
                if name in best.models:
                    best.models[name].copy_(tensor)
                else:
                    best.models[name] = tensor.detach().clone()
            best.round, best.val, best.test, best.clients_test = round, val, test, clients["test"]
            self._note_similarity(BEST)
        if round in SIMILARITY_ROUNDS:
            self._note_similarity(round)
        return {
            "val": val,
            "test": none_if_nan(test),
            "train_loss": none_if_nan(mean(report.train_loss)),
            "val_loss": none_if_nan(mean(report.val_loss)),
            "clients": clients,
        }

    def _note_similarity(self, key: int) -> None:
        similarity = self.method.similarity(self.server)
        if similarity is not None:
            self.similarities[key] = similarity.clone()

    def _find(self) -> dict[str, Tensor]:
        """What the method finds worth looking at now, on the CPU."""
        if type(self.method).findings is Method.findings:  # spares a copy of all clients' states
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
            "down": {name: dense(value) for name, value in self.down.items()},
            "best": p.best.models,
            "similarity": {str(round): s for round, s in self.similarities.items()},
        }
        tensors = {f"{group}/{name}": t.cpu() for group, named in groups.items() for name, t in named.items()}
        facts = {
            "seconds": p.seconds,
            "upload_bytes": p.upload_bytes,
            "download_bytes": p.download_bytes,
            "best": [p.best.round, p.best.val, p.best.test, p.best.clients_test] if p.best.round >= 0 else None,
            "sparse": [name for name, value in self.down.items() if isinstance(value, Sparse)],
        }
        self.folder.checkpoint(p.next_round - 1, tensors, facts)
        self._saved_at = time.monotonic()

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
        self.server = groups.get("server", {})
        sparse = set(saved.facts["sparse"])
        down = {n: t.to(self.engine.device) for n, t in groups.get("down", {}).items()}
        self.down = {n: Sparse(t) if n in sparse else t for n, t in down.items()}
        self.similarities = {int(round): s for round, s in groups.get("similarity", {}).items()}
        facts, p = saved.facts, self.progress
        p.next_round = saved.round + 1
        p.seconds, p.upload_bytes, p.download_bytes = (facts[k] for k in ("seconds", "upload_bytes", "download_bytes"))
        if facts["best"] is not None:
            round, val, test, clients_test = facts["best"]
            p.best = Best(round, val, math.nan if test is None else test, clients_test, groups["best"])
        self.records = self.folder.records()
        for record in self.records:
            self.on_round(record)


def mean(values: Tensor) -> float:
    """The mean over the clients for which the figure is defined (float64, so that the order of clients hardly matters)."""
    return float(values.double().nanmean())


def percent(values: Tensor) -> list[float | None]:
    """Per-client shares in percent; None where undefined."""
    return [none_if_nan(v * 100) for v in values.double().tolist()]


def none_if_nan(value: float) -> float | None:
    """NaN as None, which JSON can say."""
    return None if math.isnan(value) else value
