"""Centralised (no federation): everyone's graph in one place, the ceiling that a federation is compared with.

One model is trained on all training nodes of the graph that all clients' graphs make together, with the edges that the cut went
through. It is evaluated on each client's own nodes, so that its row compares with the others'. Nothing of a client stays with
it: features, labels and edges are all given away.

A node that several clients hold is one node, and its label counts once. Where clients bring graphs of their own, there are no
edges between them to restore, and the whole graph is their union. Full-batch steps are taken as everywhere, `epochs` a round; a
client's model is the common one, and on a graph of its own it predicts without the others' nodes.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import client_keys
from fedquilt.cohort.pool import whole_cohort, whole_places
from fedquilt.messages.message import Message
from fedquilt.methods.base import State, register
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.settings import BackboneSettings
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights


@register("centralised")
class Centralised(BackboneMethod):
    """State: the one model, the same for every client, with the random key of client 0."""

    title = "Centralised (no federation)"
    paper = "the ceiling: everyone's graph in one place"
    newcomers = (
        "It is no federation that could be joined: its one model is used on another graph as it is ('fedquilt "
        "predict')."
    )
    baseline = True
    Settings = BackboneSettings
    searched = (*BackboneMethod.searched, "hidden")
    client_settings: ClassVar[tuple[str, ...]] = ()
    any_module = True
    pools_graphs = True

    def needs_whole_graphs(self) -> str:
        """Everyone's graph is trained on at once."""
        return "everyone's graph is trained on as one"

    def start(self, cohort: Cohort) -> State:
        """The common start; everyone draws as client 0 does."""
        state = super().start(cohort)
        state[KEYS].copy_(client_keys(self.context.seed, whole_cohort(cohort)).expand_as(state[KEYS]))
        return state

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the mean loss over all training nodes of the whole graph, the same for every client."""
        one = {name: tensor[:1] for name, tensor in state.items()}
        whole = Dropout(dropout.rate, dropout.keys[:1], dropout.step)
        grads, loss = super().gradients(one, whole_cohort(cohort), whole, down)
        clients = cohort.clients
        return {n: g.expand(clients, *g.shape[1:]).contiguous() for n, g in grads.items()}, loss.expand(clients)

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The model's outputs at each client's nodes in the whole graph; on a graph that is in none, in that graph."""
        if cohort.members[0].pooled is None:
            return super().logits(personal, cohort)
        one = {name: tensor[:1] for name, tensor in personal.items()}
        return super().logits(one, whole_cohort(cohort))[whole_places(cohort)]
