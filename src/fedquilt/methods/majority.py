"""Majority: each client always predicts its most common training class. The lowest baseline of every table.

On a METIS cut of a homophilous graph it is high (about 69 % on Cora in ten parts), because a community holds few classes. A
method that is not better has learnt nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message
from fedquilt.methods.base import Method, State, Update, register
from fedquilt.methods.settings import NoSettings
from fedquilt.tasks.node_classification import labels


@register("majority")
class Majority(Method):
    """State: the class counts of each client's training nodes; the most common class is predicted for every node."""

    title = "Majority"
    paper = "each client's most common training class"
    newcomers = "Nothing crosses in it, so that there is nothing to give: a newcomer counts its own classes."
    Settings = NoSettings
    searched = ()
    single_round = True

    def needs_whole_graphs(self) -> str:
        """There is nothing to train."""
        return "it trains nothing"

    def needs_classes(self) -> bool:
        """It counts them."""
        return True

    def start(self, cohort: Cohort) -> State:
        """Count the classes among each client's training nodes."""
        counts = torch.zeros(cohort.clients, self.context.outputs, device=cohort.device)
        ones = torch.ones(len(cohort.train), device=cohort.device)
        counts.index_put_((cohort.client[cohort.train], labels(cohort)[cohort.train]), ones, accumulate=True)
        return {"counts": counts}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train nothing; the loss is that of predicting the class shares."""
        share = state["counts"] / state["counts"].sum(1, keepdim=True)
        return Update({}, self.personal(state), torch.special.entr(share).sum(1))

    def ignores_edge_weights(self) -> str:
        """It reads labels only."""
        return "it does not read edges"

    def personal(self, state: State) -> State:
        """The class counts."""
        return dict(state)

    def personal_shapes(self) -> dict[str, tuple[int, ...]]:
        """A count a class."""
        return {"counts": (self.context.outputs,)}

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """One for the most common class, zero for the others (the first of equals)."""
        best = personal["counts"].argmax(1)
        return F.one_hot(best, self.context.outputs).float()[cohort.client]
