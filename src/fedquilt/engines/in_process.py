"""The in-process engine: all clients in this process, in cohorts of at most `cohort_size`.

Memory: the clients' states are kept whole, O(M P) for P numbers a client; what one round needs beside them (activations,
gradients) grows with the cohort, not with the number of clients. Uploads of all participants are held at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort import Client, Cohort
from fedquilt.engines.contract import FIGURES, Report, diverged
from fedquilt.methods.contract import Method, State, Update
from fedquilt.nn.objective import METRICS, losses
from fedquilt.privacy.crossing import Crossing, Message, Sparse, Value, check, declared

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

    def __init__(
        self,
        method: Method,
        clients: Sequence[Client],
        device: torch.device | str = "cpu",
        cohort_size: int | None = None,
    ) -> None:
        self.method = method
        self.device = torch.device(device)
        self.records = self.device.type == "cuda"
        size = cohort_size or len(clients)
        self.parts = []
        for first in range(0, len(clients), size):
            cohort = Cohort(clients[first : first + size], device)
            self.parts.append(_Part(cohort, method.start(cohort), first))
        self.figures = {name: torch.full((len(clients),), torch.nan, device=device) for name in FIGURES}
        self.figures["sound"].fill_(1.0)

    def evaluate(self) -> Report:
        """How all clients stand with the models they have now."""
        for part in self.parts:
            self._measure(part.places, part.cohort, self._personal(part))
        return self._report()

    def round(self, round: int, participants: Tensor, down: Message, evaluate: bool) -> tuple[Message, Report | None]:
        """One round for the participants, cohort by cohort."""

        def step(state: State, cohort: Cohort, down: Message) -> Update:
            update = self.method.local_update(state, cohort, down, round)
            check(update.upload, self.method.uploads, self.method.name, "upload")
            return update

        uploads = self._each(step, participants, down, evaluate)
        return join_messages(uploads), self._report() if evaluate else None

    def settle(self, down: Message) -> Report:
        """The last step of clients that were admitted after training, and how they stand after it; nothing is sent."""
        everyone = torch.cat([part.cohort.ids for part in self.parts])
        self._each(self.method.settle, everyone, down, evaluate=True)
        return self._report()

    def _each(self, step: Step, participants: Tensor, down: Message, evaluate: bool) -> list[Message]:
        """Take a step with the participants, cohort by cohort; a cohort's uploads each."""
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
            uploads.append(self._train(step, part, chosen, mine, evaluate))
            first += len(chosen)
        return uploads

    def _train(self, step: Step, part: _Part, chosen: Tensor, down: Message, evaluate: bool) -> Message:
        everyone = len(chosen) == part.cohort.clients
        cohort = part.cohort if everyone else part.cohort.take(chosen.tolist())
        state = part.state if everyone else {name: tensor[chosen] for name, tensor in part.state.items()}
        update = step(state, cohort, down)
        if not everyone:
            for name, tensor in state.items():
                part.state[name][chosen] = tensor
        part.personal = update.personal if everyone else None
        places = part.places if everyone else part.first + chosen
        self.figures["train_loss"][places] = update.loss.to(self.device)
        if evaluate:
            self._measure(places, cohort, update.personal)
        return update.upload

    def _personal(self, part: _Part) -> State:
        if part.personal is None:
            part.personal = self.method.personal(part.state)
        return part.personal

    def _measure(self, places: Tensor | slice, cohort: Cohort, personal: State) -> None:
        metric = METRICS[self.method.task.metric]
        with torch.no_grad():
            logits = self.method.logits(personal, cohort)
            self.figures["sound"][places] = sound(cohort, logits, cohort.once("evaluated", _evaluated))
            self.figures["val_loss"][places] = losses(cohort, logits, cohort.val)
            self.figures["val"][places] = metric(cohort, logits, cohort.val)
            self.figures["test"][places] = metric(cohort, logits, cohort.test)

    def _report(self) -> Report:
        return Report(**{name: values.clone() for name, values in self.figures.items()})

    def probabilities(self) -> list[Tensor]:
        """What each client's personal model says now about its nodes: a tensor [n_m, C] a client, on the CPU."""
        out: list[Tensor] = []
        for part in self.parts:
            with torch.no_grad():
                logits = self.method.logits(self._personal(part), part.cohort)
            wrong = sound(part.cohort, logits, part.cohort.nodes).cpu() == 0
            if bool(wrong.any()):
                raise diverged(part.cohort.ids[wrong].tolist())
            out += part.cohort.parts_of(logits.softmax(1).cpu())
        return out

    def personal(self) -> State:
        """All clients' personal models now."""
        parts = [self._personal(part) for part in self.parts]
        if len(parts) == 1:
            return parts[0]
        return {name: torch.cat([p[name] for p in parts]) for name in parts[0]}

    def forget(self) -> None:
        """Forget the personal models."""
        for part in self.parts:
            part.personal = None

    def state(self) -> State:
        """The clients' states and figures."""
        joined = {name: torch.cat([part.state[name] for part in self.parts]) for name in self.parts[0].state}
        return joined | {"figures." + name: values for name, values in self.figures.items()}

    def restore(self, state: State) -> None:
        """Go on from what `state` gave."""
        first = 0
        for part in self.parts:
            for name, tensor in part.state.items():
                tensor.copy_(state[name][first : first + part.cohort.clients])
            first += part.cohort.clients
            part.personal = None
        for name, values in self.figures.items():
            values.copy_(state["figures." + name])


def sound(cohort: Cohort, logits: Tensor, rows: Tensor) -> Tensor:
    """[M] 1 where all of a client's logits at the `rows` are finite numbers, else 0."""
    wrong = (~torch.isfinite(logits[rows]).all(1)).float()
    return 1.0 - torch.zeros(cohort.clients, device=logits.device).index_add_(0, cohort.client[rows], wrong).clamp_max(
        1.0
    )


def _evaluated(cohort: Cohort) -> Tensor:
    return torch.cat([cohort.val, cohort.test])


def slice_message(message: Message, crossings: Sequence[Crossing], first: int, last: int) -> Message:
    """The part of a message for the participants first..last-1; shared tensors go to everyone whole."""

    def cut(name: str, value: Value) -> Value:
        crossing = declared(crossings, name)
        if crossing is not None and crossing.shared:
            return value
        return Sparse(value.tensor[first:last]) if isinstance(value, Sparse) else value[first:last]

    return {name: cut(name, value) for name, value in message.items()}


def join_messages(messages: Sequence[Message]) -> Message:
    """Uploads of several cohorts as one, participants in rising order."""
    if len(messages) == 1:
        return messages[0]
    joined: Message = {}
    for name, some in messages[0].items():
        values = [m[name] for m in messages]
        tensor = torch.cat([v.tensor if isinstance(v, Sparse) else v for v in values])
        joined[name] = Sparse(tensor) if isinstance(some, Sparse) else tensor
    return joined
