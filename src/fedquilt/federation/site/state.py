"""What a site keeps on its own disk: its state after the last rounds, and its personal model. Nobody else gets it."""

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

Kept = tuple[int, "dict[str, torch.Tensor]", dict[str, Any]]
_ROUNDS, _MODEL, _LOCK = "rounds", "model", ".lock"
_OF_A_RUN = (_ROUNDS, _MODEL, _LOCK, "ledger.jsonl")
_OVER_ALL = ("privacy.json", ".privacy.lock")
_PRIVATE, _OTHERS = 0o700, 0o077


class SiteState:
    """A folder with the state after the newest rounds (``rounds/``) and the personal model (``model/``).

    Nothing is ever overwritten in place: a new version is complete on the disk before an older one is deleted, and one that a
    kill or a bad disk damaged is passed over. Only the user who runs the site may read the folder (`make_private`).
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def save(self, round: int, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], keep: int = 2) -> None:
        """Save the state after `round`; that of the round before is kept too, later ones are dropped."""
        self._write(_ROUNDS, round, tensors, facts, keep)

    def load(self, before: int | None = None) -> Kept | None:
        """(round, tensors, facts) of the newest state that is whole, with `before` of the newest from before that round."""
        found = checkpoint.latest(self.folder / _ROUNDS, before)
        return None if found is None else (found.round, found.tensors, found.facts)

    def oldest(self) -> Kept | None:
        """The oldest state that is there and whole."""
        found = before = self.load()
        while before is not None:
            found, before = before, self.load(before=before[0])
        return found

    def save_model(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Save the personal model, by name and without a client axis, and what `fedquilt.export.model_facts` says of it."""
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

    def lock(self) -> AbstractContextManager[None]:
        """Hold the folder for a `with` block, so that no other process writes to it."""
        self._make()
        return locked(self.folder / _LOCK, self.folder)

    def _write(
        self, name: str, number: int, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], keep: int
    ) -> None:
        try:
            self._make()
            checkpoint.save(self.folder / name, number, tensors, facts, keep)
        except OSError as error:
            raise FedquiltError(f"{self.folder} cannot be written to: {error.strerror}.") from error

    def _make(self) -> None:
        make_private(self.folder)


def make_private(folder: Path) -> None:
    """Make the folder of a run, in the site's state folder, where it is missing, and let nobody else into either.

    A state folder that was there before is closed too, unless it holds other things: what is the user's own stays as it is.
    """
    for each in (folder.parent, folder):
        try:
            each.mkdir(parents=True, mode=_PRIVATE)
        except FileExistsError:
            if not each.is_dir():
                raise
            if each.stat().st_mode & _OTHERS and (each == folder or all(map(_is_kept, each.iterdir()))):
                with suppress(PermissionError):  # another user's, who lets us write there
                    each.chmod(_PRIVATE)


def _is_kept(path: Path) -> bool:
    """Whether something in a state folder is what a site keeps there: a run's folder, or what was spent over all runs."""
    if not path.is_dir():
        return any(name in path.name for name in _OVER_ALL)  # an unfinished file has its name within it
    held = [each.name for each in path.iterdir()]
    return not held or any(name in held for name in _OF_A_RUN)
