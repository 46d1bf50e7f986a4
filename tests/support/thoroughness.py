"""A method with local epochs of its own, known to the tests that ask for it only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from fedquilt.methods.base import Method, RunContext
from fedquilt.methods.fedavg import FedAvg
from support.federations import registered

NAME, EPOCHS = "thorough", 3


class Thorough(FedAvg):
    """FedAvg with three local epochs a round whatever the dataset, and a learning rate that follows them."""

    title, paper = "Thorough", "this test"

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        return {"epochs": EPOCHS, "lr": 0.01 / context.epochs}


def thorough() -> AbstractContextManager[type[Method]]:
    """The method is registered inside the block only."""
    return registered(Thorough, NAME)
