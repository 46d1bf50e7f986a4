"""Servers that admit clients after training, and a method that keeps what they need, known to tests that ask for it only."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import Method, State
from fedquilt.methods.fedavg import FedAvg
from fedquilt.scenarios.newcomers import FrozenServer
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.loop import Training
from fedquilt.training.standing_uploads import server_for_newcomers
from support.federations import registered

NAME = "keeping"


class Keeping(FedAvg):
    """FedAvg whose server keeps its last average, for newcomers to go on from."""

    title, paper = "Keeping", "this test"
    newcomers = "A newcomer trains from the common start, sends its model, and is given the average that was kept."

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        down = super().aggregate(server, uploads, senders, receivers)
        server |= {name: dense(value) for name, value in down.items()}
        return down

    def newcomer_sends(self) -> tuple[str, ...]:
        return ("*",)

    def newcomer_state(self, server: State) -> State:
        return {name: value for name, value in server.items() if name.startswith("model.")}

    def newcomer_download(self, lasting: State, uploads: Message) -> Message:
        return dict(lasting)


def keeping() -> AbstractContextManager[type[Method]]:
    """The method is registered inside the block only."""
    return registered(Keeping, NAME)


def frozen(training: Training) -> FrozenServer:
    """The server of a training, as a run keeps it."""
    assert isinstance(training.engine, InProcess)
    lasting = training.method.newcomer_state(server_for_newcomers(training, training.engine.cohorts))
    kept = {name: tensor.detach().clone() for name, tensor in lasting.items()}
    return FrozenServer(training.method, kept, torch.device("cpu"), "40/30/30", False, None)
