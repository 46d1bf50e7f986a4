"""The in-process engine: all clients in this process, in cohorts of at most `cohort_size`.

Memory: the clients' states are kept whole, O(M P) for P numbers a client; what one round needs beside them (activations,
gradients) grows with the cohort, not with the number of clients. Uploads of all participants are held at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort import Client, Cohort
from fedquilt.engines.contract import Report
from fedquilt.errors import FedquiltError
from fedquilt.methods.contract import Method, State
from fedquilt.nn.objective import METRICS, losses
from fedquilt.privacy.crossing import Crossing, Message, Sparse, Value, check, declared


@dataclass
class _Part:
    """A cohort, the states of its clients, and their personal models when last asked for."""

    cohort: Cohort
    state: State
    personal: State | None = None


class InProcess:
    """Runs every client of a federation here, a cohort at a time."""

    def __init__(
        self,
        method: Method,
        clients: Sequence[Client],
        device: torch.device | str = "cpu",
        cohort_size: int | None = None,
    ) -> None:
        self.method = method
        self.device = torch.device(device)
        size = cohort_size or len(clients)
        cohorts = [Cohort(clients[first : first + size], device) for first in range(0, len(clients), size)]
        self.parts = [_Part(cohort, method.start(cohort)) for cohort in cohorts]
        self.figures = {name: torch.full((len(clients),), torch.nan) for name in Report.__dataclass_fields__}

    def evaluate(self) -> Report:
        """How all clients stand with the models they have now."""
        for part in self.parts:
            self._measure(part.cohort, self._personal(part))
        return self._report()

    def round(self, round: int, participants: Tensor, down: Message, evaluate: bool) -> tuple[Message, Report | None]:
        """One round for the participants, cohort by cohort."""
        uploads: list[Message] = []
        first = 0
        for part in self.parts:
            chosen = torch.nonzero(torch.isin(part.cohort.ids, participants)).ravel()
            if not len(chosen):
                continue
            mine = slice_message(down, self.method.downloads, first, first + len(chosen))
            uploads.append(self._train(part, chosen, mine, round, evaluate))
            first += len(chosen)
        return join_messages(uploads), self._report() if evaluate else None

    def _train(self, part: _Part, chosen: Tensor, down: Message, round: int, evaluate: bool) -> Message:
        everyone = len(chosen) == part.cohort.clients
        cohort = part.cohort if everyone else part.cohort.take(chosen.tolist())
        state = part.state if everyone else {name: tensor[chosen] for name, tensor in part.state.items()}
        update = self.method.local_update(state, cohort, down, round)
        check(update.upload, self.method.uploads, self.method.name, "upload")
        if not everyone:
            for name, tensor in state.items():
                part.state[name][chosen] = tensor
        part.personal = update.personal if everyone else None
        self.figures["train_loss"][cohort.ids] = update.loss.cpu()
        if evaluate:
            self._measure(cohort, update.personal)
        return update.upload

    def _personal(self, part: _Part) -> State:
        if part.personal is None:
            part.personal = self.method.personal(part.state)
        return part.personal

    def _measure(self, cohort: Cohort, personal: State) -> None:
        metric, ids = METRICS[self.method.task.metric], cohort.ids
        with torch.no_grad():
            logits = self.method.logits(personal, cohort)
            self._check_finite(cohort, logits)
            self.figures["val_loss"][ids] = losses(cohort, logits, cohort.val).cpu()
            self.figures["val"][ids] = metric(cohort, logits, cohort.val).cpu()
            self.figures["test"][ids] = metric(cohort, logits, cohort.test).cpu()

    def _check_finite(self, cohort: Cohort, logits: Tensor) -> None:
        """Refuse to measure a model that gives no numbers: an argmax or a rank of them would look like a result."""
        seen = torch.cat([cohort.val, cohort.test])
        wrong = ~torch.isfinite(logits[seen]).all(1)
        if bool(wrong.any()):
            clients = sorted({int(cohort.ids[m]) for m in cohort.client[seen][wrong].tolist()})
            which = ", ".join(map(str, clients[:5])) + (" and others" if len(clients) > 5 else "")
            models = "the models of clients" if len(clients) > 1 else "the model of client"
            raise FedquiltError(
                f"Training diverged: no finite numbers come from {models} {which} any more; "
                "use a smaller learning rate (--set lr=...)."
            )

    def _report(self) -> Report:
        return Report(**{name: values.clone() for name, values in self.figures.items()})

    def personal(self) -> State:
        """All clients' personal models now."""
        parts = [self._personal(part) for part in self.parts]
        if len(parts) == 1:
            return parts[0]
        return {name: torch.cat([p[name] for p in parts]) for name in parts[0]}

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
        self.figures = {name: state["figures." + name].clone() for name in self.figures}


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
