"""How much of the gradient at the shared weights is the semantic term's: its norm over the cross-entropy's, round by round.

Eq. 41 is linear in its weights, so that a term's gradient is the difference between two gradients at the same state.

    python docs/images/fedssa_gradients.py 0
    python docs/images/fedssa_gradients.py 0 encoder=separate elbo=0.1 semantic_weight=0.1
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

import fedquilt
from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message
from fedquilt.methods.base import State, register
from fedquilt.methods.fedssa import FedSSA
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights

SHARES: dict[str, list[float]] = {"filter": [], "model.hidden.weight": []}


@register("fedssa-shares")
class Shares(FedSSA):
    """FedSSA that notes the shares before every step."""

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradients as they are; beside them, two more without the terms that are compared."""
        whole = super().gradients(state, cohort, dropout, down)
        with self.set(semantic_weight=0.0):
            without = super().gradients(dict(state), cohort, dropout, down)[0]
        with self.set(semantic_weight=0.0, elbo=0.0):
            entropy = super().gradients(dict(state), cohort, dropout, down)[0]
        for name, shares in SHARES.items():
            semantic = (whole[0][name] - without[name]).flatten(1).norm(dim=1)
            shares.append(round(float((semantic / entropy[name].flatten(1).norm(dim=1).clamp_min(1e-12)).median()), 4))
        return whole

    @contextmanager
    def set(self, **changes: Any) -> Iterator[None]:
        """Other settings for a while."""
        own = self.settings
        self.settings = replace(own, **changes)
        try:
            yield
        finally:
            self.settings = own


def value(text: str) -> Any:
    """A setting's value as it is typed."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def main(seed: str, *settings: str) -> None:
    """Train on Cora with these settings and print the shares of every step."""
    given = {name: value(text) for name, text in (each.split("=", 1) for each in settings)}
    fedquilt.run(method="fedssa-shares", dataset="cora", clients=10, seeds=[int(seed)], settings=given)
    print(json.dumps(SHARES))


if __name__ == "__main__":
    main(*sys.argv[1:])
