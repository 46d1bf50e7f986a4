"""The base class of methods that train one of the usual graph neural networks at their clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedquilt.cohort.batches import fits
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.sampled_neighbours import most_nodes
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import Method, RunContext, State, methods
from fedquilt.methods.base_adam import MODEL, AdamMethod, gradients_of, leaves_of
from fedquilt.methods.settings import BackboneSettings, MixedBackboneSettings
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.layerwise import outputs_in_parts
from fedquilt.nn.mixed_network import MixedNetwork
from fedquilt.nn.models import Model, Network, Output, Shapes
from fedquilt.nn.module_backbone import ModuleNetwork

NETWORK = ("model", "hidden", "layers")  # the settings that say what network it is


class BackboneMethod(AdamMethod):
    """A method on a backbone: see `fedquilt.nn.models`.

    Attributes:
        any_module: it needs no more of a network than its outputs and the names of its weights, so that a user's own module
            will do (`fedquilt.nn.module_backbone`).
    """

    settings: BackboneSettings
    any_module: ClassVar[bool] = False

    def __init__(self, settings: BackboneSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        self.model = self.make_model()

    def make_model(self) -> Network:
        """The backbone that the settings name, or several, of which each client has one."""
        own = self._label(self.settings)
        others = [label for label in getattr(self.settings, "networks", "").split(",") if label not in ("", own)]
        if not others:
            return self.network(self.settings)
        networks = {own: self.network(self.settings)}
        for label in others:
            model, hidden, layers = label.rsplit("-", 2)
            networks[label] = self.network(replace(self.settings, model=model, hidden=int(hidden), layers=int(layers)))
        return MixedNetwork(networks, self._label_of, self.context.seed)

    def network(self, s: BackboneSettings) -> Network:
        """The backbone of these settings."""
        context = self.context
        if s.model in Model.kinds:
            return Model.kinds[s.model](context.features, s.hidden, context.outputs, s.layers)
        if not self.any_module:
            able = [name for name, kind in methods().items() if getattr(kind, "any_module", False)]
            raise FedquiltError(
                f"Method '{self.name}' needs a network of fedquilt's own, such as model=gcn; the backbone '{s.model}' works "
                f"with {', '.join(able)}."
            )
        return ModuleNetwork(s.model, context.features, context.outputs, s, context.seed)

    # -- clients with networks of their own ----------------------------------------------------------------------------

    def settings_with(self, own: Iterable[Mapping[str, Any]]) -> Any:
        """With the networks that clients have by their own settings."""
        s = self.settings
        if not isinstance(s, MixedBackboneSettings):
            return s
        found = dict.fromkeys([*s.networks.split(","), *(self._label(self._with(one)) for one in own)])
        return replace(s, networks=",".join(label for label in found if label not in ("", self._label(s))))

    def as_client(self, own: Mapping[str, Any]) -> Method:
        """With the client's own network in place of the run's."""
        if not isinstance(self.model, MixedNetwork) and not any(name in own for name in NETWORK):
            return self
        return type(self)(self.settings_alone(own), self.context, self.averaging)

    def settings_alone(self, own: Mapping[str, Any]) -> Any:
        """The settings of a client's own network."""
        s = self._with(own)
        return replace(s, networks="") if isinstance(s, MixedBackboneSettings) else s

    def client_weights(self, weights: State, own: Mapping[str, Any]) -> State:
        """Those of its own network, and all that belongs to none."""
        if not isinstance(self.model, MixedNetwork):
            return weights
        theirs = self.model.shapes()
        mine = self.model.own_weights(weights, self._label(self._with(own)))
        return mine | {name: w for name, w in weights.items() if name not in theirs}

    def _with(self, own: Mapping[str, Any]) -> BackboneSettings:
        return replace(self.settings, **{name: own[name] for name in NETWORK if name in own})

    def _label(self, s: BackboneSettings) -> str:
        return f"{s.model}-{s.hidden}-{s.layers}"

    def _label_of(self, client: Client) -> str:
        return self._label(self._with(client.settings))

    @property
    def one_by_one(self) -> bool:
        """Whether clients are computed one after the other."""
        return isinstance(self.model, ModuleNetwork) or getattr(self.model, "one_by_one", False)

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        """The common start; a user's module draws its own from the seed."""
        if isinstance(self.model, ModuleNetwork | MixedNetwork):
            return self.model.start(clients, device)
        return super().common_weights(clients, device)

    def start(self, cohort: Cohort) -> State:
        """The common start; of several networks, a client has one, and zeros in place of the others."""
        state = super().start(cohort)
        if isinstance(self.model, MixedNetwork):
            for label in self.model.networks:
                has = self.model.has(label, cohort)
                for name in self.model.networks[label].shapes():
                    state[f"{MODEL}{label}.{name}"][~has] = 0.0
        return state

    def ignores_edge_weights(self) -> str:
        """What the network says of itself, where it has an attribute of this name; else it uses them."""
        return str(getattr(self.model, "ignores_edge_weights", ""))

    def shapes(self) -> Shapes:
        """The backbone's."""
        return self.model.shapes()

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss, and each client's loss [M]."""
        effective, loss = self.effective_gradients(self.weights(state), cohort, dropout)
        return {MODEL + name: grad for name, grad in effective.items()}, loss

    def effective_gradients(
        self, weights: Weights, cohort: Cohort, dropout: Dropout, network: Network | None = None
    ) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss with respect to weights as the network uses them, and each client's loss [M].

        `network` is the method's model unless it is given.
        """
        leaves = leaves_of(weights)
        outputs = (network or self.model).training(cohort, leaves, dropout)
        total, each = self.task.training_loss(cohort, outputs.logits, dropout.draws)
        return gradients_of(total, leaves), each

    def at_every_node(
        self, weights: Weights, cohort: Cohort, embedding: bool = True, network: Network | None = None
    ) -> Output:
        """A network's outputs at every node, without dropout; part by part where clients train on parts of their graphs.

        Then embeddings are left out, [R, 0], unless they are asked for. `network` is the method's model unless it is given.
        """
        model = network or self.model
        if not self.in_parts(cohort):
            return model(cohort, weights)
        return outputs_in_parts(model, cohort, weights, self.step_nodes, embedding)

    def in_parts(self, cohort: Cohort) -> bool:
        """Whether clients train on parts of their graphs that are smaller than these, and outputs are computed part by part."""
        return self.context.batch_nodes > 0 and not fits(cohort, self.step_nodes)

    @property
    def step_nodes(self) -> int:
        """How many nodes of a client a training step reads at most, with the neighbours that are drawn."""
        return most_nodes(self.context.batch_nodes, self.context.fan_out)

    def needs_whole_graphs(self) -> str:
        """A part of a graph is enough for the task's loss."""
        return ""

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The personal models' logits, without dropout."""
        return self.at_every_node(personal, cohort, embedding=False).logits
