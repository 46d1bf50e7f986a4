"""The in-process engine: all clients in this process, in cohorts of at most `cohort_size`.

Memory: activations and gradients grow with the cohort, not with the number of clients. The clients' states, O(M P) for
P numbers a client, and the uploads of all participants are held whole. Where there are several cohorts and the states
exceed a gigabyte, they are offloaded to disk (`fedquilt.devices.offload`), and only those of the current cohort are in
memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.devices import offload
from fedquilt.devices.device import Precision, computing_in
from fedquilt.messages.message import Message, check, dense
from fedquilt.messages.slicing import join_messages, same_kind, slice_message
from fedquilt.methods.base import Method, State, Update
from fedquilt.methods.base_adam import keep_rows
from fedquilt.training.engines.base import EVALUATION_FIELDS, Evaluation, diverged
from fedquilt.training.engines.registry import IN_PROCESS, EngineOptions, register_engine

# What clients do with a download: state, cohort, download -> update.
Step = Callable[[State, Cohort, Message], Update]
# The names that checkpoints have for the fields of `Evaluation`.
METRICS_PREFIX = "figures."
_SAVED_NAMES = {name: METRICS_PREFIX + ("sound" if name == "finite" else name) for name in EVALUATION_FIELDS}


@dataclass
class _Part:
    """One cohort of the engine.

    Attributes:
        cohort: its clients.
        state: their states, rows of the engine's tensors.
        first: the place of its first client among the engine's.
        personal: their personal models, if they are remembered.
    """

    cohort: Cohort
    state: State
    first: int
    personal: State | None = None

    @property
    def places(self) -> slice:
        """The places of its clients among the engine's."""
        return slice(self.first, self.first + self.cohort.clients)


@register_engine(IN_PROCESS)
def make_in_process(method: Method, clients: Sequence[Client], options: EngineOptions) -> InProcess:
    """The engine that a run's options ask for."""
    return InProcess(method, clients, options.device, options.cohort_size, options.precision)


class InProcess:
    """Runs all clients in this process, one cohort after the other. Clients are in rising order of their numbers."""

    senders: Tensor | None = None
    clients_are_private = False
    efforts: Mapping[int, float] = {}
    reported: dict[str, float] = {}  # noqa: RUF012 (never changed)

    def __init__(
        self,
        method: Method,
        clients: Sequence[Client],
        device: torch.device | str = "cpu",
        cohort_size: int | None = None,
        precision: Precision = "float32",
    ) -> None:
        self.method, self.precision = method, precision
        self.device = torch.device(device)
        self.supports_cuda_graphs = self.device.type == "cuda"
        self.timings: dict[str, float] = {}
        size = cohort_size or len(clients)
        self.parts: list[_Part] = []
        self._state: State = {}  # of all clients; parts have rows of it
        self._uploads: State = {}  # the joined uploads, where they are offloaded
        self._personal_models: State = {}
        for first in range(0, len(clients), size):
            cohort = Cohort(clients[first : first + size], device)
            self._add(_Part(cohort, method.start(cohort), first), len(clients))
        self.metrics = {name: torch.full((len(clients),), torch.nan, device=device) for name in EVALUATION_FIELDS}
        self.metrics["finite"].fill_(1.0)

    def _add(self, part: _Part, clients: int) -> None:
        """Add a part. Its states are copied into the tensors of all clients, unless it is the only part."""
        if part.cohort.clients == clients:
            self._state = part.state
        elif not self._state:
            size = sum(t[0].numel() * t.element_size() for t in part.state.values()) * clients
            offloaded = self.device.type == "cpu" and size > offload.THRESHOLD_BYTES
            make = offload.offloaded_zeros if offloaded else partial(_empty, device=self.device)
            self._state = {n: make((clients, *t.shape[1:]), t.dtype) for n, t in part.state.items()}
        views = {name: whole[part.places] for name, whole in self._state.items()}
        for name, tensor in part.state.items():
            if tensor is not self._state[name]:
                views[name].copy_(tensor)
        part.state = views
        self.parts.append(part)
        offload.release_pages(*views.values())

    @property
    def cohorts(self) -> list[Cohort]:
        """The cohorts, one after the other."""
        return [part.cohort for part in self.parts]

    @property
    def _offloaded(self) -> bool:
        return any(map(offload.is_offloaded, self._state.values()))

    def evaluate(self) -> Evaluation:
        """Evaluate the current models of all clients."""
        with computing_in(self.precision):
            for part in self.parts:
                self._measure(part.places, part.cohort, self._personal(part))
                offload.release_pages(*part.state.values())
        return self._evaluation()

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """Train the participants, cohort by cohort."""

        def step(state: State, cohort: Cohort, down: Message) -> Update:
            update = self.method.local_update(state, cohort, down, round)
            check(update.upload, self.method.uploads, self.method.name, "upload")
            return update

        self.timings = {}
        with computing_in(self.precision):
            uploads = self._each(step, participants, down, evaluate)
        return uploads, self._evaluation() if evaluate else None

    def set_clocks(self, round: int, at_work: Tensor) -> None:
        """Set the clocks of those at work to the first step of the round."""
        for part in self.parts:
            self.method.set_clock(part.state, part.cohort, at_work[part.places], round)

    def round_of_everyone(
        self, round: int, at_work: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """Train all clients, and give those who are not at work their states again."""
        uploads: list[Message] = []
        with computing_in(self.precision):
            for part in self.parts:
                here, before = at_work[part.places], {name: tensor.clone() for name, tensor in part.state.items()}
                mine = slice_message(down, self.method.downloads, part.places.start, part.places.stop)
                update = self.method.local_update(part.state, part.cohort, mine, round)
                check(update.upload, self.method.uploads, self.method.name, "upload")
                keep_rows(part.state, before, here)
                part.personal = self.method.personal(part.state)
                loss = self.metrics["train_loss"][part.places]
                loss.copy_(torch.where(here, update.loss.to(self.device), loss))
                if evaluate:
                    self._measure(part.places, part.cohort, part.personal)
                uploads.append(update.upload)
        return join_messages(uploads), self._evaluation() if evaluate else None

    def settle(self, down: Message) -> Evaluation:
        """Let clients that were admitted after training take their last step, and evaluate them."""
        everyone = torch.cat([part.cohort.ids for part in self.parts])
        with computing_in(self.precision):
            self._each(self.method.newcomer_update, everyone, down, evaluate=True)
        return self._evaluation()

    def _each(self, step: Step, participants: Tensor, down: Message, evaluate: bool) -> Message:
        """Take a step with the participants, cohort by cohort, and join their uploads."""
        uploads: list[Message] = []
        first = 0
        everyone = len(participants) == sum(part.cohort.clients for part in self.parts)
        for part in self.parts:
            chosen = torch.arange(part.cohort.clients)
            if not everyone:
                chosen = torch.nonzero(torch.isin(part.cohort.ids, participants)).ravel()
                if not len(chosen):
                    continue
            mine = slice_message(down, self.method.downloads, first, first + len(chosen))
            upload = self._train(step, part, chosen, mine, evaluate)
            uploads.append(self._offload_upload(upload, first, len(participants)) if self._offloaded else upload)
            first += len(chosen)
        if not self._offloaded:
            return join_messages(uploads)
        return {name: same_kind(value, self._uploads[name][:first]) for name, value in uploads[-1].items()}

    def _offload_upload(self, upload: Message, first: int, senders: int) -> Message:
        """Copy a cohort's upload to the rows from `first` on of the offloaded uploads, and return these rows."""
        rows: Message = {}
        for name, value in upload.items():
            tensor = dense(value)
            whole = self._uploads.get(name)
            if whole is None or len(whole) < senders or whole.shape[1:] != tensor.shape[1:]:
                whole = self._uploads[name] = offload.offloaded_zeros((senders, *tensor.shape[1:]), tensor.dtype)
            mine = whole[first : first + len(tensor)].copy_(tensor)
            offload.release_pages(mine)
            rows[name] = same_kind(value, mine)
        return rows

    def _train(self, step: Step, part: _Part, chosen: Tensor, down: Message, evaluate: bool) -> Message:
        everyone = len(chosen) == part.cohort.clients
        cohort = part.cohort if everyone else part.cohort.take(chosen.tolist())
        state = part.state if everyone else {name: tensor[chosen] for name, tensor in part.state.items()}
        with self._timed("train"), self._working(cohort):
            update = step(state, cohort, down)
        if not everyone:
            for name, tensor in state.items():
                part.state[name][chosen] = tensor
        part.personal = update.personal if everyone and not self._offloaded else None
        places = part.places if everyone else part.first + chosen
        self.metrics["train_loss"][places] = update.loss.to(self.device)
        if evaluate:
            with self._timed("evaluate"):
                self._measure(places, cohort, update.personal, update.logits)
        offload.release_pages(*part.state.values())
        return update.upload

    @contextmanager
    def _working(self, cohort: Cohort) -> Iterator[None]:
        """Inside the block, stragglers among the cohort's clients do their share of the work."""
        numbers = cohort.ids.tolist() if self.efforts else []
        if any(number in self.efforts for number in numbers):
            cohort.efforts = [self.efforts.get(number, 1.0) for number in numbers]
        try:
            yield
        finally:
            cohort.efforts = None

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Add the duration of the block to a timing of this round; not on an accelerator, which works asynchronously."""
        began = time.perf_counter()
        yield
        if self.device.type == "cpu":
            self.timings[what] = self.timings.get(what, 0.0) + time.perf_counter() - began

    def _personal(self, part: _Part) -> State:
        if part.personal is not None:
            return part.personal
        models = self.method.personal(part.state)
        if not self._offloaded:
            part.personal = models
        return models

    def _measure(self, places: Tensor | slice, cohort: Cohort, personal: State, known: Tensor | None = None) -> None:
        """Write the metrics of personal models; `known` are their logits in validation, if they are (`Update.logits`)."""
        task = self.method.task
        metric = task.metric(self.method.context.metric).function
        val, test = task.seen(cohort, "val"), task.seen(cohort, "test")
        with torch.no_grad():
            outputs = self.method.logits(personal, val) if known is None else known
            self.metrics["finite"][places] = task.finite(cohort, outputs)
            self.metrics["val_loss"][places] = task.losses(cohort, outputs, "val")
            self.metrics["val"][places] = metric(cohort, outputs, "val")
            if test is not val:
                outputs = self.method.logits(personal, test)
                self.metrics["finite"][places] *= task.finite(cohort, outputs)
            self.metrics["test"][places] = metric(cohort, outputs, "test")

    def _evaluation(self) -> Evaluation:
        return Evaluation(**{name: values.clone() for name, values in self.metrics.items()})

    def predictions(self) -> list[Tensor]:
        """The current predictions at all nodes: a tensor [n_m, C] for each client, on the CPU."""
        out: list[Tensor] = []
        for part in self.parts:
            with torch.no_grad(), computing_in(self.precision):
                outputs = self.method.logits(self._personal(part), part.cohort)
            offload.release_pages(*part.state.values())
            wrong = self.method.task.finite(part.cohort, outputs, [part.cohort.nodes]).cpu() == 0
            if bool(wrong.any()):
                raise diverged(part.cohort.ids[wrong].tolist())
            task = self.method.task
            out += part.cohort.parts_of(task.predict(task.in_units(part.cohort, outputs)).cpu())
        return out

    def personal(self) -> State:
        """The current personal models of all clients."""
        if len(self.parts) == 1:
            return self._personal(self.parts[0])
        if not self._offloaded:
            parts = [self._personal(part) for part in self.parts]
            return {name: torch.cat([p[name] for p in parts]) for name in parts[0]}
        clients, whole = len(self.metrics["val"]), self._personal_models
        for part in self.parts:
            for name, tensor in self._personal(part).items():
                if name not in whole:
                    whole[name] = offload.offloaded_zeros((clients, *tensor.shape[1:]), tensor.dtype)
                offload.release_pages(whole[name][part.places].copy_(tensor))
            offload.release_pages(*part.state.values())
        return whole

    def forget(self) -> None:
        """Drop the remembered personal models."""
        for part in self.parts:
            part.personal = None

    def state(self) -> State:
        """The clients' states and metrics."""
        return self._state | {_SAVED_NAMES[name]: values for name, values in self.metrics.items()}

    def restore(self, state: State) -> None:
        """Set the state to one that `state` returned."""
        for name, tensor in self._state.items():
            for rows, chunk in offload.row_chunks(tensor):
                chunk.copy_(state[name][rows])
        self.forget()
        for name, values in self.metrics.items():
            values.copy_(state[_SAVED_NAMES[name]])


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device)
