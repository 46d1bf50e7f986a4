"""A personal model with all that one needs to know to use it, far from where it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.export.conversion import constants_of
from fedquilt.methods.base import Method, RunContext, find_method
from fedquilt.methods.settings import as_dict, build_settings


@dataclass(frozen=True, eq=False)
class Personal:
    """One client's personal model.

    Attributes:
        method: what trained it, with its settings and its context.
        weights: by name, without a client axis; on the CPU.
        client: the client's number in the training.
        constants: what the model needs to know of the graph it was trained on (`constants_of`); none for most methods.
        normalise_features: whether each node's features are divided by their sum first.
        class_names: what the classes are called, where they have names.
        feature_names: what the features are called, in the order of the weights, where they have names.
    """

    method: Method
    weights: dict[str, Tensor]
    client: int
    constants: dict[str, float]
    normalise_features: bool = False
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None

    @classmethod
    def restored(
        cls, weights: Mapping[str, Tensor], facts: Mapping[str, Any], trained: Client | None = None
    ) -> Personal:
        """From what `model_facts` gave and the weights that were saved with it.

        What facts of another origin lack is taken from the client that it was `trained` at, where that is given.
        """
        try:
            cls_, context = find_method(facts["method"]), RunContext.from_dict(facts["task"])
            method = cls_(build_settings(cls_, context, facts["settings"]), context)
            client = int(facts["client"])
        except (KeyError, TypeError, ValueError):
            raise FedquiltError(
                "The model was saved without what is needed to use it (its method, settings, task and client); "
                "train it again with this version of fedquilt."
            ) from None
        constants = facts.get("constants")
        if constants is None:
            constants = {} if trained is None else constants_of(method, trained)
        names, features = facts.get("class_names"), facts.get("feature_names")
        if trained is not None:
            names = trained.graph.class_names if names is None else names
            features = trained.graph.feature_names if features is None else features
        return cls(
            method=method,
            weights=dict(weights),
            client=client,
            constants={name: float(value) for name, value in constants.items()},
            normalise_features=bool(facts.get("normalise_features", False)),
            class_names=None if names is None else tuple(names),
            feature_names=None if features is None else tuple(features),
        )


def model_facts(method: Method, client: Client, normalise_features: bool = False) -> dict[str, Any]:
    """What is saved beside a personal model's weights, for `Personal.restored`; in JSON's types."""
    graph = client.graph
    return training_facts(method, normalise_features, graph.class_names, graph.feature_names) | {
        "client": client.id,
        "constants": constants_of(method, client),
    }


def training_facts(
    method: Method,
    normalise_features: bool = False,
    class_names: tuple[str, ...] | None = None,
    feature_names: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """The part of it that is the same for all clients of a training."""
    return {
        "method": method.name,
        "settings": as_dict(method.settings),
        "task": method.context.to_dict(),
        "normalise_features": normalise_features,
        "class_names": None if class_names is None else list(class_names),
        "feature_names": None if feature_names is None else list(feature_names),
    }
