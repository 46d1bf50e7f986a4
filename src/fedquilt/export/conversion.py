"""From a method's personal model to a network of `networks.py`: which one, and how it is made.

A method with a network of its own registers what makes it, here or in its own file:

    @network_of.register
    def _(method: MyMethod, client, constants, normalise): return MyNetwork(...)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import TYPE_CHECKING

import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.draws import Draws
from fedquilt.common.random_streams import derive
from fedquilt.errors import FedquiltError
from fedquilt.export.networks import Backbone, Filters, Majority, Network, Routing, Spectral, Structure
from fedquilt.methods.base import Method
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.fedhero import LEARNER, FedHERO
from fedquilt.methods.fediih import FedIIH
from fedquilt.methods.fedssa import FedSSA
from fedquilt.methods.majority import Majority as MajorityMethod
from fedquilt.nn.filters import FilterNet
from fedquilt.nn.latent_graph import BERNOULLI_LAYER
from fedquilt.nn.models import Gat, Model
from fedquilt.tasks.node_classification import training_homophily

if TYPE_CHECKING:
    from fedquilt.export.personal import Personal

Constants = Mapping[str, float]
HOMOPHILY = "homophily"


class NoNetworkError(FedquiltError):
    """A method whose models cannot be exported."""


def module_of_personal(personal: Personal) -> Network:
    """The network with the personal model's weights, ready to predict."""
    method = personal.method
    with torch.device("meta"):
        network = network_of(method, personal.client, personal.constants, personal.normalise_features)
    weights = {name: tensor.detach().cpu().clone() for name, tensor in personal.weights.items()}
    filled_in(network, weights | drawn_words(method, personal.client))
    network.class_names = personal.class_names
    return network


def filled_in(network: Network, weights: dict[str, torch.Tensor]) -> None:
    """Give a network that has no numbers yet its weights, all of them and no others, in their shapes."""
    right = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(right.keys() | found.keys()):
        if right.get(name) != found.get(name):
            raise FedquiltError(
                f"The model's weights are not those of its network: '{name}' is {_shape(found.get(name))} where "
                f"{_shape(right.get(name))} belongs; save the model again."
            )
    network.load_state_dict(weights, assign=True)
    network.eval()


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "x".join(map(str, shape)) or "one number"


@singledispatch
def network_of(method: Method, client: int, constants: Constants, normalise: bool) -> Network:
    """The network of a method's personal models, its weights not filled in yet.

    Args:
        method: with its settings and its context.
        client: the client's number in the training.
        constants: what `constants_of` gave for it.
        normalise: whether features are divided by their sum first.
    """
    raise NoNetworkError(
        f"The models of method '{method.name}' cannot be exported: nobody has written its network as a plain module; "
        "register one with fedquilt.export.conversion.network_of."
    )


@singledispatch
def constants_of(method: Method, client: Client) -> dict[str, float]:
    """What a personal model needs to know of the graph it was trained on, beside its weights; it stays with the model."""
    return {}


def has_constants(method: Method) -> bool:
    """Whether there is any such thing."""
    return constants_of.dispatch(type(method)) is not constants_of.dispatch(object)


@network_of.register
def _(method: MajorityMethod, client: int, constants: Constants, normalise: bool) -> Network:
    return Majority(classes=method.context.outputs, normalise=normalise)


@network_of.register
def _(method: BackboneMethod, client: int, constants: Constants, normalise: bool) -> Network:
    model = method.model
    if type(method).logits is BackboneMethod.logits and isinstance(model, Model):
        heads = model.heads if isinstance(model, Gat) else 1
        return Backbone(model.kind, model.features, model.hidden, model.outputs, heads, normalise)
    if type(method).logits is BackboneMethod.logits and isinstance(model, FilterNet):
        m = model
        return Filters(m.features, m.hidden, m.outputs, m.order, m.groups, m.identity, m.basis, normalise)
    return network_of.dispatch(object)(method, client, constants, normalise)


@network_of.register
def _(method: FedSSA, client: int, constants: Constants, normalise: bool) -> Network:
    s, context = method.settings, method.context
    if s.basis == "unifilter" and HOMOPHILY not in constants:
        raise FedquiltError(
            "The model was saved without the homophily of the graph it was trained on, which its filter needs; "
            "train it again with this version of fedquilt."
        )
    return Spectral(
        features=context.features,
        hidden=s.hidden,
        classes=context.outputs,
        basis=s.basis,
        order=s.order,
        mix=s.mix,
        homophily=constants.get(HOMOPHILY, 0.5),
        normalise=normalise,
    )


@constants_of.register
def _(method: FedSSA, client: Client) -> dict[str, float]:
    return {HOMOPHILY: training_homophily(client)}


@network_of.register
def _(method: FedIIH, client: int, constants: Constants, normalise: bool) -> Network:
    return Routing(
        features=method.context.features,
        factors=method.factors,
        width=method.width,
        classes=method.context.outputs,
        layers=method.class_layers,
        iterations=method.settings.iterations,
        both=method.settings.classify == "both",
        normalise=normalise,
    )


@network_of.register
def _(method: FedHERO, client: int, constants: Constants, normalise: bool) -> Network:
    s, context = method.settings, method.context
    return Structure(
        features=context.features,
        hidden=s.hidden,
        classes=context.outputs,
        learner=s.learner,
        learner_hidden=s.learner_hidden,
        heads=s.heads,
        k=s.k,
        alpha=s.alpha,
        channels=s.channels,
        draws=s.latent == "bernoulli",
        normalise=normalise,
    )


def drawn_words(method: Method, client: int) -> dict[str, torch.Tensor]:
    """What the random neighbours of a client's latent graph are a hash of, where they are drawn: [2] int32."""
    if not isinstance(method, FedHERO) or method.settings.latent != "bernoulli":
        return {}
    key = torch.tensor([derive(method.context.seed, "client", client, "dropout")], dtype=torch.int64)
    return {LEARNER + "words": torch.cat(Draws(key, 0).keyed(BERNOULLI_LAYER))}
