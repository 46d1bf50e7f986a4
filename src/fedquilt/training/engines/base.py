"""The engine interface: what the round loop and the admission of newcomers ask of whatever runs the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedquilt.errors import DivergedError
from fedquilt.messages.message import Message
from fedquilt.methods.base import State


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Losses and metrics of all clients, each [M] float32 on the engine's device; NaN where a client has nothing to evaluate.

    Metrics are not scaled (`Metric.scale`). A client that did not take part keeps its last values.

    Attributes:
        finite: 1 where all outputs that the metrics read are finite, else 0; then the other values mean nothing.
    """

    train_loss: Tensor
    val_loss: Tensor
    val: Tensor
    test: Tensor
    finite: Tensor

    def stacked(self) -> Tensor:
        """All fields as one tensor, [5, M]."""
        return torch.stack([getattr(self, name) for name in EVALUATION_FIELDS])

    def of(self, clients: Tensor) -> Evaluation:
        """The same for some clients, [M] bool, and NaN for the others, as if they had nothing to evaluate."""
        here = clients.to(self.val.device)
        kept = {name: torch.where(here, getattr(self, name), torch.nan) for name in EVALUATION_FIELDS}
        return Evaluation(**(kept | {"finite": torch.where(here, self.finite, 1.0)}))

    def check_finite(self, first: int = 0) -> None:
        """Raise where a client's outputs are not finite: a metric of them would look like a result.

        `first` is the number of the first client.
        """
        wrong = (torch.nonzero(self.finite == 0).ravel() + first).tolist()
        if wrong:
            raise diverged(wrong)


EVALUATION_FIELDS = tuple(field.name for field in fields(Evaluation))


def diverged(clients: Sequence[int]) -> DivergedError:
    """The error for clients whose models give outputs that are not finite."""
    which = ", ".join(map(str, clients[:5])) + (" and others" if len(clients) > 5 else "")
    models = "the models of clients" if len(clients) > 1 else "the model of client"
    return DivergedError(f"no finite numbers come from {models} {which} any more", clients)


@runtime_checkable
class SimulatesStragglers(Protocol):
    """An engine whose clients can be told to do a part of their training steps.

    Attributes:
        efforts: the share of its steps that a client does in the next round, by its number; one that is not in it does all.
    """

    efforts: Mapping[int, float]


@runtime_checkable
class ComputesEveryone(Protocol):
    """An engine that can train some clients with the shapes of all, as a CUDA graph needs it."""

    def set_clocks(self, round: int, at_work: Tensor) -> None:
        """Set what the random numbers of those at work, [M] bool, depend on; before a CUDA graph is replayed."""

    def round_of_everyone(
        self, round: int, at_work: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """As `Engine.round`, but all clients compute, and those who are not at work, [M] bool, keep their states.

        Messages have a row for every client.
        """


class Engine(Protocol):
    """Runs the clients' part of rounds. Messages have the participants, in rising order, as leading axis.

    Attributes:
        device: the device of downloads and uploads.
        supports_cuda_graphs: whether `round` can be captured in a CUDA graph (`fedquilt.devices.cuda_graph`).
        timings: the seconds of the last round by what was done (train, evaluate); empty where they are not measured.
        senders: [n] the clients whose uploads the last round returned, in rising order; None: all participants.
        clients_are_private: whether models and states never leave the clients. Then `personal` returns nothing, `state` only
            what the engine itself needs, and clients may withhold their metrics.
        reported: further values that clients reported about the last round, for its record.
    """

    device: torch.device
    supports_cuda_graphs: bool
    timings: dict[str, float]
    senders: Tensor | None
    clients_are_private: bool
    reported: dict[str, float]

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        """Send `down` to the participants, train them, and return their uploads; with `evaluate`, also all clients' metrics."""

    def settle(self, down: Message) -> Evaluation:
        """Let clients that were admitted after training take their last step (`Method.newcomer_update`), and evaluate them."""

    def evaluate(self) -> Evaluation:
        """Evaluate the current models of all clients."""

    def predictions(self) -> list[Tensor]:
        """The current predictions at all nodes (`Task.predict`): a tensor [n_m, C] for each client, on the CPU."""

    def personal(self) -> State:
        """The current personal models of all clients, leading axis the client. Valid until the next round."""

    def forget(self) -> None:
        """Drop remembered personal models, so that `personal` derives them from the clients' states again."""

    def state(self) -> State:
        """The tensors that a checkpoint needs."""

    def restore(self, state: State) -> None:
        """Set the state to one that `state` returned."""
