"""What a site saves of a run on its own disk: its state after the last rounds, and its personal model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.common.lock import locked
from fedquilt.errors import FedquiltError
from fedquilt.runs import checkpoint

if TYPE_CHECKING:
    import torch

# The round, the tensors, and facts about them.
SavedState = tuple[int, "dict[str, torch.Tensor]", dict[str, Any]]
_ROUNDS, _MODEL, _LOCK = "rounds", "model", ".lock"
_FILES_OF_A_RUN = (_ROUNDS, _MODEL, _LOCK, "ledger.jsonl")
_FILES_OF_ALL_RUNS = ("privacy.json", ".privacy.lock", "secure-identity.pem")
_OWNER_ONLY, _ANYONE_ELSE = 0o700, 0o077  # permission bits of a folder


class SiteState:
    """A folder with the state after the newest rounds (``rounds/``) and the personal model (``model/``).

    Nothing is overwritten in place: a new version is complete on the disk before an older one is deleted, and a version that a
    kill or a bad disk damaged is skipped. Only the user who runs the site may read the folder (`make_private`).
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def save(self, round: int, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], keep: int = 2) -> None:
        """Save the state after `round`. The newest `keep` states stay; states of later rounds are deleted."""
        self._write(_ROUNDS, round, tensors, facts, keep)

    def load(self, before: int | None = None) -> SavedState | None:
        """The newest state that is not damaged; with `before`, the newest of an earlier round."""
        found = checkpoint.latest(self.folder / _ROUNDS, before)
        return None if found is None else (found.round, found.tensors, found.facts)

    def oldest(self) -> SavedState | None:
        """The oldest state that is there and not damaged."""
        found = before = self.load()
        while before is not None:
            found, before = before, self.load(before=before[0])
        return found

    def save_model(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Save the personal model: named weights without a client axis, and the facts of `model_facts`."""
        newest = checkpoint.latest(self.folder / _MODEL)
        self._write(_MODEL, 0 if newest is None else newest.round + 1, tensors, facts, keep=2)

    def load_model(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """(tensors, facts) of the personal model, or None where none was saved."""
        found = checkpoint.latest(self.folder / _MODEL)
        return None if found is None else (found.tensors, found.facts)

    @property
    def model_time(self) -> int | None:
        """When the personal model was saved, in nanoseconds since 1970, or None where none was."""
        return max((path.stat().st_mtime_ns for path in (self.folder / _MODEL).glob("*.json")), default=None)

    def lock(self, wait: float = 0.0) -> AbstractContextManager[None]:
        """Hold the folder for a `with` block; HeldError where another process holds it for more than `wait` seconds."""
        make_private(self.folder)
        return locked(self.folder / _LOCK, self.folder, wait)

    def _write(
        self, name: str, number: int, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], keep: int
    ) -> None:
        try:
            make_private(self.folder)
            checkpoint.save(self.folder / name, number, tensors, facts, keep)
        except OSError as error:
            raise FedquiltError(f"{self.folder} cannot be written to: {error.strerror}.") from error


def make_private(folder: Path) -> None:
    """Make the folder of a run in the site's state folder, both readable by this user only.

    A state folder that exists is closed to others too, unless it holds files that are not a site's.
    """
    for each in (folder.parent, folder):
        try:
            each.mkdir(parents=True, mode=_OWNER_ONLY)
        except FileExistsError:
            if not each.is_dir():
                raise
            if each.stat().st_mode & _ANYONE_ELSE and (each == folder or all(map(_is_a_sites, each.iterdir()))):
                with suppress(PermissionError):  # it belongs to another user, who lets us write there
                    each.chmod(_OWNER_ONLY)


def _is_a_sites(path: Path) -> bool:
    """Whether a path in a state folder is a site's own: a run's folder, or the privacy budget."""
    if not path.is_dir():
        return any(name in path.name for name in _FILES_OF_ALL_RUNS)  # temporary files contain the name
    found = [each.name for each in path.iterdir()]
    return not found or any(name in found for name in _FILES_OF_A_RUN)
