"""Checkpoints: the state after a round. After a kill at any moment there is one that verifies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.common.files import TEMPORARY
from fedquilt.common.sealed import DamagedError, facts_path, read_pair, tensor_path, write_pair

if TYPE_CHECKING:
    import torch

_FILE = re.compile(r"round-(\d{6,})\.(safetensors|json)")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after a round.

    Attributes:
        round: the last round it includes.
        tensors: what was saved, on the CPU.
        facts: what was saved with the tensors, as read from JSON (tuples are lists, keys are text).
        beside: what the folder saved beside them about its own files.
        skipped: one sentence for each newer checkpoint that is damaged and was skipped.
    """

    round: int
    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]
    beside: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def save(
    folder: Path,
    round: int,
    tensors: Mapping[str, torch.Tensor],
    facts: Mapping[str, Any],
    keep: int = 2,
    beside: Mapping[str, Any] | None = None,
) -> None:
    """Save the state after `round`, then delete all but the newest `keep` complete checkpoints.

    Later rounds are deleted too: where they exist, training went back to before them.
    """
    if round < 0 or keep < 1:
        raise ValueError(f"round must be at least 0 and keep at least 1, not {round} and {keep}")
    folder = Path(folder)
    write_pair(_stem(folder, round), tensors, {"round": round, "facts": dict(facts), "beside": beside or {}})
    for path in folder.glob(f".round-*{TEMPORARY}"):
        path.unlink(missing_ok=True)
    drop_after(folder, round)
    complete = [number for number in _rounds(folder) if _is_complete(folder, number)]
    for number in set(_rounds(folder)) - set(complete[:keep]):
        _delete(folder, number)


def latest(folder: Path, before: int | None = None) -> Checkpoint | None:
    """The newest checkpoint that verifies, or None; damaged ones are skipped and named in `skipped`.

    With `before`, the newest of those from before that round.
    """
    folder = Path(folder)
    skipped: list[str] = []
    for number in _rounds(folder):
        if before is not None and number >= before:
            continue
        try:
            tensors, sealed = read_pair(_stem(folder, number))
            if sealed.get("round") != number or not isinstance(sealed.get("facts"), dict):
                raise DamagedError("its name and its contents name different rounds")
        except DamagedError as error:
            skipped.append(f"The checkpoint of round {number} was passed over: {error}.")
        else:
            return Checkpoint(number, tensors, sealed["facts"], sealed.get("beside") or {}, skipped)
    return None


def drop_after(folder: Path, round: int) -> None:
    """Delete the checkpoints of later rounds, whole or damaged."""
    for number in _rounds(Path(folder)):
        if number > round:
            _delete(Path(folder), number)


def _stem(folder: Path, round: int) -> Path:
    return folder / f"round-{round:06d}"


def _rounds(folder: Path) -> list[int]:
    """The rounds of which there is at least one file, newest first."""
    if not folder.is_dir():
        return []
    matches = (_FILE.fullmatch(path.name) for path in folder.iterdir())
    return sorted({int(match[1]) for match in matches if match}, reverse=True)


def _is_complete(folder: Path, round: int) -> bool:
    stem = _stem(folder, round)
    return facts_path(stem).is_file() and tensor_path(stem).is_file()


def _delete(folder: Path, round: int) -> None:
    # The JSON file is deleted first, so that a kill in between leaves no complete-looking pair.
    facts_path(_stem(folder, round)).unlink(missing_ok=True)
    tensor_path(_stem(folder, round)).unlink(missing_ok=True)
