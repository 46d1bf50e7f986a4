"""An exported model on disk: `model.safetensors` and `model.json`, which says the architecture. Nothing is pickled."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from fedquilt.common.sealed import DamagedError, facts_path, read_pair, write_pair
from fedquilt.errors import FedquiltError, unknown
from fedquilt.export.conversion import filled_in
from fedquilt.export.networks import NETWORKS, Network

STEM = "model"
FORMAT = 1


def save_module(module: Network, folder: str | os.PathLike[str]) -> None:
    """Write a module that `module_of` gave (trained further, if you like) into a folder; what it held is replaced."""
    if not isinstance(module, Network):
        raise FedquiltError(f"A {type(module).__name__} cannot be saved here; give a module that module_of returned.")
    facts = {
        "format": FORMAT,
        "network": type(module).__name__,
        "config": module.config,
        "class_names": module.class_names,
        "forward": "x [n, F], edge_index [2, E] -> logits [n, C]; see fedquilt/export/networks.py",
    }
    try:
        write_pair(Path(folder) / STEM, module.state_dict(), facts)
    except OSError as error:
        raise FedquiltError(f"The model cannot be written to {folder}: {error.strerror}.") from error


def load_module(folder: str | os.PathLike[str]) -> Network:
    """The module that `save_module` wrote, on the CPU."""
    stem = Path(folder) / STEM
    if not facts_path(stem).is_file():
        raise FedquiltError(f"There is no exported model in {folder}; write one with fedquilt.export.save_module.")
    try:
        weights, facts = read_pair(stem)
    except DamagedError as error:
        raise FedquiltError(f"The model in {folder} cannot be used: {error}.") from error
    name, config, names = facts.get("network"), facts.get("config"), facts.get("class_names")
    if facts.get("format") != FORMAT or not isinstance(name, str) or not isinstance(config, dict):
        raise FedquiltError(
            f"The model in {folder} is not one that this version of fedquilt can read; export it again."
        )
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    try:
        with torch.device("meta"):
            network = NETWORKS[name](**config)
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError):
        raise FedquiltError(f"{facts_path(stem)} does not describe a {name}; export the model again.") from None
    filled_in(network, weights)
    network.class_names = None if names is None else tuple(map(str, names))
    return network
