"""The in-process engine: all clients in this process, in cohorts of at most `cohort_size`.

Memory: what one round needs (activations, gradients) grows with the cohort, not with the number of clients. The clients'
states, O(M P) for P numbers a client, and the uploads of all participants are kept whole; where there are several cohorts and
the states come to more than a gigabyte they are offloaded to disk (`fedquilt.devices.offload`), and only those of the cohort
that is computed are in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.devices import offload
from fedquilt.devices.device import Precision, computing_in
from fedquilt.messages.message import Factored, Message, Sparse, TensorSpec, Value, check, declared, dense
from fedquilt.methods.base import Method, State, Update
from fedquilt.training.engines.base import EVALUATION_FIELDS, Evaluation, diverged

# What clients do with a download: state, cohort, download -> update.
Step = Callable[[State, Cohort, Message], Update]


@dataclass
class _Part:
    """A cohort, the states of its clients, and their personal models when last asked for."""

    cohort: Cohort
    state: State
    first: int  # the place of its first client among the engine's
    personal: State | None = None

    @property
    def places(self) -> slice:
        """The places of its clients among the engine's."""
        return slice(self.first, self.first + self.cohort.clients)


class InProcess:
    """Runs every client of a federation here, a cohort at a time; clients come in rising order of their numbers."""

    answered: Tensor | None = None
    private = False
    told: dict[str, float] = {}  # noqa: RUF012 (never changed)

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
        self.records = self.device.type == "cuda"
        self.phases: dict[str, float] = {}
        size = cohort_size or len(clients)
        self.parts: list[_Part] = []
        self._state: State = {}  # all clients'; the parts have views of it
        self._uploads: State = {}  # where uploads are joined, when they rest on disk
        self._personal_models: State = {}
        for first in range(0, len(clients), size):
            cohort = Cohort(clients[first : first + size], device)
            self._add(_Part(cohort, method.start(cohort), first), len(clients))
        self.figures = {name: torch.full((len(clients),), torch.nan, device=device) for name in EVALUATION_FIELDS}
        self.figures["sound"].fill_(1.0)

    def _add(self, part: _Part, clients: int) -> None:
        """Take a part in: what its clients keep goes where all clients' is."""
        if part.cohort.clients == clients:
            self._state = part.state
        elif not self._state:
            size = sum(t[0].numel() * t.element_size() for t in part.state.values()) * clients
            resting = self.device.type == "cpu" and size > offload.LIMIT
            make = offload.empty if resting else partial(_empty, device=self.device)
            self._state = {n: make((clients, *t.shape[1:]), t.dtype) for n, t in part.state.items()}
        views = {name: whole[part.places] for name, whole in self._state.items()}
        for name, tensor in part.state.items():
            if tensor is not self._state[name]:
                views[name].copy_(tensor)
        part.state = views
        self.parts.append(part)
        offload.release(*views.values())

    @property
    def _rests(self) -> bool:
        return any(map(offload.rests, self._state.values()))

    def evaluate(self) -> Evaluation:
        """How all clients stand with the models they have now."""
        with computing_in(self.precision):
            for part in self.parts:
                self._measure(part.places, part.cohort, self._personal(part))
                offload.release(*part.state.values())
        return self._report()

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """One round for the participants, cohort by cohort."""

        def step(state: State, cohort: Cohort, down: Message) -> Update:
            update = self.method.local_update(state, cohort, down, round)
            check(update.upload, self.method.uploads, self.method.name, "upload")
            return update

        self.phases = {}
        with computing_in(self.precision):
            uploads = self._each(step, participants, down, evaluate)
        return uploads, self._report() if evaluate else None

    def settle(self, down: Message) -> Evaluation:
        """The last step of clients that were admitted after training, and how they stand after it; nothing is sent."""
        everyone = torch.cat([part.cohort.ids for part in self.parts])
        with computing_in(self.precision):
            self._each(self.method.newcomer_update, everyone, down, evaluate=True)
        return self._report()

    def _each(self, step: Step, participants: Tensor, down: Message, evaluate: bool) -> Message:
        """Take a step with the participants, cohort by cohort; their uploads."""
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
            uploads.append(self._set_aside(upload, first, len(participants)) if self._rests else upload)
            first += len(chosen)
        if not self._rests:
            return join_messages(uploads)
        return {name: _as(value, self._uploads[name][:first]) for name, value in uploads[-1].items()}

    def _set_aside(self, upload: Message, first: int, senders: int) -> Message:
        """Put a cohort's upload where all uploads rest on disk, from row `first` on; its rows there."""
        rows: Message = {}
        for name, value in upload.items():
            tensor = dense(value)
            whole = self._uploads.get(name)
            if whole is None or len(whole) < senders or whole.shape[1:] != tensor.shape[1:]:
                whole = self._uploads[name] = offload.empty((senders, *tensor.shape[1:]), tensor.dtype)
            mine = whole[first : first + len(tensor)].copy_(tensor)
            offload.release(mine)
            rows[name] = _as(value, mine)
        return rows

    def _train(self, step: Step, part: _Part, chosen: Tensor, down: Message, evaluate: bool) -> Message:
        everyone = len(chosen) == part.cohort.clients
        cohort = part.cohort if everyone else part.cohort.take(chosen.tolist())
        state = part.state if everyone else {name: tensor[chosen] for name, tensor in part.state.items()}
        with self._timed("train"):
            update = step(state, cohort, down)
        if not everyone:
            for name, tensor in state.items():
                part.state[name][chosen] = tensor
        part.personal = update.personal if everyone and not self._rests else None
        places = part.places if everyone else part.first + chosen
        self.figures["train_loss"][places] = update.loss.to(self.device)
        if evaluate:
            with self._timed("evaluate"):
                self._measure(places, cohort, update.personal)
        offload.release(*part.state.values())
        return update.upload

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        """Add the time of a block to a phase of this round; an accelerator works on when the block is over, so not there."""
        began = time.perf_counter()
        yield
        if self.device.type == "cpu":
            self.phases[phase] = self.phases.get(phase, 0.0) + time.perf_counter() - began

    def _personal(self, part: _Part) -> State:
        if part.personal is not None:
            return part.personal
        made = self.method.personal(part.state)
        if not self._rests:
            part.personal = made
        return made

    def _measure(self, places: Tensor | slice, cohort: Cohort, personal: State) -> None:
        task = self.method.task
        metric = task.metric(self.method.context.metric).function
        with torch.no_grad():
            outputs = self.method.logits(personal, cohort)
            self.figures["sound"][places] = task.finite(cohort, outputs)
            self.figures["val_loss"][places] = task.losses(cohort, outputs, "val")
            self.figures["val"][places] = metric(cohort, outputs, "val")
            self.figures["test"][places] = metric(cohort, outputs, "test")

    def _report(self) -> Evaluation:
        return Evaluation(**{name: values.clone() for name, values in self.figures.items()})

    def predictions(self) -> list[Tensor]:
        """The predictions of each client's personal model at its nodes: a tensor [n_m, C] a client, on the CPU."""
        out: list[Tensor] = []
        for part in self.parts:
            with torch.no_grad(), computing_in(self.precision):
                outputs = self.method.logits(self._personal(part), part.cohort)
            offload.release(*part.state.values())
            wrong = self.method.task.finite(part.cohort, outputs, [part.cohort.nodes]).cpu() == 0
            if bool(wrong.any()):
                raise diverged(part.cohort.ids[wrong].tolist())
            out += part.cohort.parts_of(self.method.task.predict(outputs).cpu())
        return out

    def personal(self) -> State:
        """All clients' personal models now."""
        if len(self.parts) == 1:
            return self._personal(self.parts[0])
        if not self._rests:
            parts = [self._personal(part) for part in self.parts]
            return {name: torch.cat([p[name] for p in parts]) for name in parts[0]}
        clients, whole = len(self.figures["val"]), self._personal_models
        for part in self.parts:
            for name, tensor in self._personal(part).items():
                if name not in whole:
                    whole[name] = offload.empty((clients, *tensor.shape[1:]), tensor.dtype)
                offload.release(whole[name][part.places].copy_(tensor))
            offload.release(*part.state.values())
        return whole

    def forget(self) -> None:
        """Forget the personal models."""
        for part in self.parts:
            part.personal = None

    def state(self) -> State:
        """The clients' states and figures."""
        return self._state | {"figures." + name: values for name, values in self.figures.items()}

    def restore(self, state: State) -> None:
        """Go on from what `state` gave."""
        for name, tensor in self._state.items():
            for rows, piece in offload.pieces(tensor):
                piece.copy_(state[name][rows])
        self.forget()
        for name, values in self.figures.items():
            values.copy_(state["figures." + name])


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


def slice_message(message: Message, specs: Sequence[TensorSpec], first: int, last: int) -> Message:
    """The part of a message for the participants first..last-1; shared tensors go to everyone whole."""

    def cut(name: str, value: Value) -> Value:
        spec = declared(specs, name)
        if spec is not None and spec.shared:
            return value
        if isinstance(value, Factored):
            return value.rows(first, last)
        return Sparse(value.tensor[first:last]) if isinstance(value, Sparse) else value[first:last]

    return {name: cut(name, value) for name, value in message.items()}


def join_messages(messages: Sequence[Message]) -> Message:
    """Uploads of several cohorts as one, participants in rising order."""
    if len(messages) == 1:
        return messages[0]
    joined: Message = {}
    for name, some in messages[0].items():
        joined[name] = _as(some, torch.cat([dense(m[name]) for m in messages]))
    return joined


def _as(value: Value, tensor: Tensor) -> Value:
    """The tensor, sent in the way that `value` is."""
    return Sparse(tensor) if isinstance(value, Sparse) else tensor
