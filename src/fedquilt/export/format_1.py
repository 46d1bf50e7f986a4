"""Exported models as fedquilt wrote them at first: a network's name and its sizes in place of a method and its settings.

Each of the six networks is that of a method here, with weights of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from fedquilt.cohort.draws import key_name, key_of_words
from fedquilt.errors import unknown
from fedquilt.methods.base import RunContext
from fedquilt.nn.latent_graph import BERNOULLI_LAYER

FORMAT = 1
WORDS = "learner.words"  # two words of 32 bits, from which random latent neighbours are drawn
Config = Mapping[str, Any]
Settings = dict[str, Any]


def translated(weights: Mapping[str, Tensor], facts: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and facts of format 1 as `Personal.restored` reads them.

    Raises:
        KeyError, TypeError, ValueError: where the facts are not those of a network.
    """
    network, config = facts["network"], facts["config"]
    if network not in NETWORKS:
        raise unknown("network", network, NETWORKS)
    method, settings_of = NETWORKS[network]
    sizes = int(config.get("features", 0)), int(config["classes"])
    context = RunContext("exported", "exported", "accuracy", *sizes, clients=1, epochs=1, seed=0)
    constants: dict[str, float] = {}
    if "homophily" in config:
        constants["homophily"] = config["homophily"]
    if config.get("draws"):
        constants[key_name(context.seed)] = key_of_words(weights[WORDS], BERNOULLI_LAYER)
    return {name: w for name, w in weights.items() if name != WORDS}, {
        "method": method,
        "settings": settings_of(config),
        "task": context.to_dict(),
        "client": 0,
        "constants": constants,
        "normalise_features": config["normalise"],
        "class_names": facts.get("class_names"),
    }


def _same(*names: str, **renamed: str) -> Callable[[Config], Settings]:
    """Settings that have the names of the config, or other ones."""
    return lambda config: {name: config[name] for name in names} | {new: config[old] for new, old in renamed.items()}


def _routing(config: Config) -> Settings:
    return {
        "factors": config["factors"],
        "hidden": config["factors"] * config["width"],
        "layers": config["layers"] + 2 if config["layers"] > 1 else 1,  # the last two belong to the autoencoder
        "iterations": config["iterations"],
        "classify": "both" if config["both"] else "routed",
    }


def _structure(config: Config) -> Settings:
    same = _same("hidden", "learner", "learner_hidden", "heads", "k", "alpha", "channels")(config)
    return same | {"latent": "bernoulli" if config["draws"] else "top-k"}


# By the network's name: the method that has it, and the method's settings from the network's config.
NETWORKS: dict[str, tuple[str, Callable[[Config], Settings]]] = {
    "Majority": ("majority", _same()),
    "Backbone": ("local", _same("hidden", model="kind")),
    "Filters": ("quilt", _same("hidden", "order", "groups", "identity", "basis")),
    "Spectral": ("fedssa", _same("hidden", "basis", "order", "mix")),
    "Routing": ("fediih", _routing),
    "Structure": ("fedhero", _structure),
}
