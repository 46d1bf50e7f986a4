"""An exported model on disk: `model.safetensors` has its weights, `model.json` the rest. Nothing is pickled."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from fedquilt.common.sealed import DamagedError, facts_path, read_pair, write_pair
from fedquilt.errors import FedquiltError
from fedquilt.export import format_1
from fedquilt.export.module import PersonalModule
from fedquilt.methods.personal_model import Personal

STEM = "model"
FORMAT = 2  # as it was before features were prepared; an earlier version reads these models
PREPARED = 3


def save_module(module: PersonalModule, folder: str | os.PathLike[str]) -> None:
    """Write a module that `module_of` gave, perhaps trained further since, into a folder; an earlier model is replaced."""
    if not isinstance(module, PersonalModule):
        raise FedquiltError(f"A {type(module).__name__} cannot be saved here; give a module that module_of returned.")
    facts = replace(module.personal, class_names=module.class_names).facts()
    try:
        raw = facts["preparation"]["kind"] == "none"
        write_pair(Path(folder) / STEM, module.state_dict(), {"format": FORMAT if raw else PREPARED, **facts})
    except OSError as error:
        raise FedquiltError(f"The model cannot be written to {folder}: {error.strerror}.") from error


def load_module(folder: str | os.PathLike[str]) -> PersonalModule:
    """The module that `save_module` wrote, on the CPU."""
    stem = Path(folder) / STEM
    if not facts_path(stem).is_file():
        raise FedquiltError(f"There is no exported model in {folder}; write one with fedquilt.export.save_module.")
    try:
        weights, facts = read_pair(stem)
    except DamagedError as error:
        raise FedquiltError(f"The model in {folder} cannot be used: {error}.") from error
    if facts.get("format") not in (format_1.FORMAT, FORMAT, PREPARED):
        raise FedquiltError(
            f"The model in {folder} is not one that this version of fedquilt can read; export it again."
        )
    try:
        if facts["format"] == format_1.FORMAT:
            weights, facts = format_1.translated(weights, facts)
        return PersonalModule(Personal.restored(weights, facts))
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError):
        raise FedquiltError(f"{facts_path(stem)} does not describe a model; export the model again.") from None
