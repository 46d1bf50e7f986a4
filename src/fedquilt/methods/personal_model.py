"""A personal model with all that is needed to use it away from its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import MEAN_WEIGHT, Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.preparation import Preparation
from fedquilt.graphs.prepare import normalise
from fedquilt.graphs.split import NONE
from fedquilt.methods.base import Method, RunContext, find_method
from fedquilt.methods.settings import as_dict, build_settings

CLIENT_SETTINGS = "client_settings"  # in the facts of a run's models: each client's own settings


@dataclass(frozen=True, eq=False)
class Personal:
    """One client's personal model.

    Attributes:
        method: the method that trained it, with its settings and its context.
        weights: by name, without a client axis; on the CPU.
        client: the client's number in the training.
        constants: the numbers of its training graph that the model needs (`Method.saved_constants`), and the mean edge weight
            where its edges had weights; none for most methods.
        normalise_features: whether each node's features are divided by their sum first.
        preparation: how features in their own units come to the model's scale, as in its training.
        class_names: the names of the classes, where they have names.
        feature_names: the names of the features in the order of the weights, where they have names.
        encoding: how the columns of a table became these features, where they came from one.
    """

    method: Method
    weights: dict[str, Tensor]
    client: int
    constants: dict[str, float]
    normalise_features: bool = False
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    preparation: Preparation = field(default_factory=Preparation)
    encoding: Encoding | None = None

    @classmethod
    def restored(
        cls, weights: Mapping[str, Tensor], facts: Mapping[str, Any], trained: Client | None = None
    ) -> Personal:
        """The model of saved weights and the facts that `model_facts` gave.

        Facts that an older version did not save are computed from `trained`, the client that trained it, where that is given.
        """
        try:
            cls_, context = find_method(facts["method"]), RunContext.from_dict(facts["task"])
            settings = {**cls_.settings_before, **facts["settings"]}
            method = cls_(build_settings(cls_, context, settings), context)
            client = int(facts["client"])
            preparation = Preparation.restored(facts.get("preparation"), context.features)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise FedquiltError(
                "The model was saved without what is needed to use it (its method, settings, task and client); "
                "train it again with this version of fedquilt."
            ) from None
        constants = facts.get("constants")
        if constants is None:
            constants = {} if trained is None else constants_of(method, trained)
            constants.pop(MEAN_WEIGHT, None)  # versions that did not save constants did not use weights either
        names, features, encoding = facts.get("class_names"), facts.get("feature_names"), facts.get("encoding")
        read = None if encoding is None else Encoding.from_dict(encoding, "The model")
        if trained is not None:
            names = trained.graph.class_names if names is None else names
            features = trained.graph.feature_names if features is None else features
            read = trained.graph.encoding if read is None else read
        return cls(
            method=method,
            weights=dict(weights),
            client=client,
            constants=dict(constants),
            normalise_features=bool(facts.get("normalise_features", False)),
            class_names=None if names is None else tuple(names),
            feature_names=None if features is None else tuple(features),
            preparation=preparation,
            encoding=read,
        )

    def of_client(self, own: Mapping[str, Any]) -> Personal:
        """The model of a client with settings of its own, from its row of models that may be of several networks."""
        weights = self.method.client_weights(self.weights, own)
        return replace(self, method=self.method.as_client(own), weights=weights)

    def facts(self) -> dict[str, Any]:
        """All but the weights, in JSON's types; `restored` reads it."""
        shared = training_facts(
            self.method, self.normalise_features, self.class_names, self.feature_names, self.encoding
        )
        own = {"client": self.client, "constants": self.constants, "preparation": self.preparation.facts()}
        return shared | own

    def check(self) -> None:
        """Refuse weights that are not those of the method's network, and a model saved without a constant that it needs."""
        right = self.method.personal_shapes()
        found = {name: tuple(tensor.shape) for name, tensor in self.weights.items()}
        right = found if right is None else right  # unknown before training
        for name in sorted(found.keys() | right.keys()):
            if right.get(name) != found.get(name):
                raise FedquiltError(
                    f"The model's weights are not those of its network: '{name}' is {_shape(found.get(name))} where "
                    f"{_shape(right.get(name))} belongs; save the model again."
                )
        for name in self.method.saved_constants():
            if name not in self.constants:
                raise FedquiltError(
                    f"The model was saved without the {name} of the graph it was trained on, which it needs; "
                    "train it again with this version of fedquilt."
                )

    def cohort(self, graph: Graph, device: torch.device | str = "cpu") -> Cohort:
        """A graph as a cohort of one client, this one. No node of it has a label or trains.

        Edge weights are used as in training: relative to the training graph's mean, or not at all where that had none.
        """
        x = self.preparation.apply(normalise(graph.x) if self.normalise_features else graph.x)
        unlabelled = np.full(graph.nodes, -1, dtype=np.int64)
        weights = graph.edge_weights if self.weighted else None
        own = Graph(graph.name, graph.edges, x, unlabelled, self.method.context.outputs, edge_weights=weights)
        client = Client(self.client, own, np.full(graph.nodes, NONE, dtype=np.int8))
        for name, value in self.constants.items():
            client.preset(name, value)
        return Cohort([client], device)

    @property
    def weighted(self) -> bool:
        """Whether the edges it was trained on had weights."""
        return MEAN_WEIGHT in self.constants

    def weight_warning(self, graph: Graph) -> str | None:
        """A sentence where a graph has edge weights and the training graph had none, or the other way round."""
        same = (graph.edge_weights is not None) == self.weighted or not graph.edges.size
        if same or self.method.ignores_edge_weights():
            return None
        if self.weighted:
            return (
                f"The edges of {graph.name} have no weights, and the model was trained on edges with weights: each counts "
                "as much as a training edge did on average."
            )
        return f"The edges of {graph.name} have weights, which are not used: the model was trained on edges without weights."

    @torch.no_grad()
    def logits(self, graph: Graph, device: torch.device | str = "cpu") -> Tensor:
        """The model's outputs at every node of a graph: [n, C]."""
        self.check()
        weights = {name: tensor.unsqueeze(0).to(device) for name, tensor in self.weights.items()}
        return self.outputs(weights, self.cohort(graph, device))

    def outputs(self, weights: Mapping[str, Tensor], cohort: Cohort) -> Tensor:
        """The outputs of these weights, with a client axis, at a cohort's rows in the units of the labels: [R, C]."""
        return self.method.task.in_units(cohort, self.method.logits(dict(weights), cohort))


def constants_of(method: Method, client: Client) -> dict[str, float]:
    """The numbers of a client's training graph that its personal model needs."""
    weight = {} if client.graph.edge_weights is None else {MEAN_WEIGHT: client.mean_weight}
    return {name: client.once(name, compute) for name, compute in method.saved_constants().items()} | weight


def model_facts(
    method: Method, client: Client, normalise_features: bool = False, preparation: Preparation | None = None
) -> dict[str, Any]:
    """The facts that are saved beside a personal model's weights, in JSON's types; `Personal.restored` reads them.

    `client` has its features as it trained, prepared by `preparation`.
    """
    graph = client.graph
    return training_facts(method, normalise_features, graph.class_names, graph.feature_names, graph.encoding) | {
        "client": client.id,
        "constants": constants_of(method, client),
        "preparation": (preparation or Preparation()).facts(),
    }


def training_facts(
    method: Method,
    normalise_features: bool = False,
    class_names: tuple[str, ...] | None = None,
    feature_names: tuple[str, ...] | None = None,
    encoding: Encoding | None = None,
) -> dict[str, Any]:
    """The facts that are the same for all clients of a training."""
    return {
        "method": method.name,
        "settings": as_dict(method.settings),
        "task": method.context.to_dict(),
        "normalise_features": normalise_features,
        "class_names": None if class_names is None else list(class_names),
        "feature_names": None if feature_names is None else list(feature_names),
        "encoding": None if encoding is None else encoding.to_dict(),
    }


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "x".join(map(str, shape)) or "one number"
