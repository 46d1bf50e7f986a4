"""A method that admits clients after training, known to the tests that ask for it only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from fedquilt.methods import contract
from fedquilt.methods.contract import State, register
from fedquilt.methods.fedavg import FedAvg
from fedquilt.privacy.crossing import Message, dense

NAME = "keeping"


class Keeping(FedAvg):
    """FedAvg whose server keeps its last average, for newcomers to go on from."""

    title, paper = "Keeping", "this test"
    admits = True

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        down = super().aggregate(server, uploads, senders, receivers)
        server |= {name: dense(value) for name, value in down.items()}
        return down

    def lasting(self, server: State) -> State:
        return dict(server)

    def admit(self, lasting: State, uploads: Message) -> Message:
        return dict(lasting)


@contextmanager
def keeping() -> Iterator[type[Keeping]]:
    """The method is registered inside the block only."""
    register(NAME)(Keeping)
    try:
        yield Keeping
    finally:
        del contract._METHODS[NAME]
