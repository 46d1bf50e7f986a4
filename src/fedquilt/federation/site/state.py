"""What a site saves of a run on its own disk: its state after the last rounds, and its personal model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.common.lock import locked
from fedquilt.common.private_files import OWNER_FOLDER, make_private_folder, write_private_json
from fedquilt.errors import FedquiltError
from fedquilt.runs import checkpoint

if TYPE_CHECKING:
    import torch

# The round, the tensors, and facts about them.
SavedState = tuple[int, "dict[str, torch.Tensor]", dict[str, Any]]
_ROUNDS, _MODEL, _LOCK, _FACTS = "rounds", "model", ".lock", "run.json"
_FILES_OF_A_RUN = (_ROUNDS, _MODEL, _LOCK, _FACTS, "ledger.jsonl")
_FILES_OF_ALL_RUNS = (
    "privacy.json",
    ".privacy.lock",
    "secure-identity.pem",
    "contacts.json",
    ".site.lock",
    ".quota.lock",
    "site.log",
    "incidents.jsonl",
    ".log.lock",
)
LEDGERS = "ledgers"  # the folder for ledgers of runs whose folders were deleted
_ANYONE_ELSE = 0o077  # permission bits of a folder
_RUN = re.compile(r"[0-9a-f]{8,64}")  # the name of a run


class SiteState:
    """A folder with the state after the newest rounds (``rounds/``), the personal model (``model/``), and facts (``run.json``).

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

    def skipped_models(self) -> list[str]:
        """One sentence for each version of the personal model that is newer than the one that is used, and damaged."""
        found = checkpoint.latest(self.folder / _MODEL)
        return [] if found is None else found.skipped

    @property
    def model_time(self) -> int | None:
        """When the personal model was saved, in nanoseconds since 1970, or None where none was."""
        return max((path.stat().st_mtime_ns for path in (self.folder / _MODEL).glob("*.json")), default=None)

    def note(self, **facts: Any) -> None:
        """Note facts about the run, beside those that were noted before. Training does not depend on them."""
        make_private(self.folder)
        write_private_json(self.folder / _FACTS, self.facts() | facts, sync=False)

    def facts(self) -> dict[str, Any]:
        """What was noted about the run; empty where nothing was, or where it cannot be read."""
        try:
            found = json.loads((self.folder / _FACTS).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def lock_path(self) -> Path:
        """The file that whoever works on the run holds."""
        return self.folder / _LOCK

    def lock(self, wait: float = 0.0) -> AbstractContextManager[None]:
        """Hold the folder for a `with` block; HeldError where another process holds it for more than `wait` seconds."""
        make_private(self.folder)
        return locked(self.lock_path, self.folder, wait)

    def _write(
        self, name: str, number: int, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], keep: int
    ) -> None:
        try:
            make_private(self.folder)
            make_private_folder(self.folder / name)
            checkpoint.save(self.folder / name, number, tensors, facts, keep)
        except OSError as error:
            raise FedquiltError(f"{self.folder} cannot be written to: {error.strerror}.") from error


def make_private(folder: Path) -> None:
    """Make the folder of a run in the site's state folder, both readable by this user only.

    A state folder that exists is closed to others too, unless it holds files that are not a site's.
    """
    make_state_private(folder.parent)
    _make_private(folder, lambda: True)


def make_state_private(folder: Path) -> None:
    """Make a site's state folder, readable by this user only."""
    _make_private(folder, lambda: all(map(_is_a_sites, folder.iterdir())))


def run_folders(state: Path) -> list[Path]:
    """The folders of runs in a site's state folder."""
    if not state.is_dir():
        return []
    return sorted(each for each in state.iterdir() if _RUN.fullmatch(each.name) and each.is_dir())


def _make_private(folder: Path, may_be_closed: Callable[[], bool]) -> None:
    try:
        folder.mkdir(parents=True, mode=OWNER_FOLDER)
    except FileExistsError:
        if not folder.is_dir():
            raise
        if folder.stat().st_mode & _ANYONE_ELSE and may_be_closed():
            with suppress(PermissionError):  # it belongs to another user, who lets us write there
                folder.chmod(OWNER_FOLDER)


def _is_a_sites(path: Path) -> bool:
    """Whether a path in a state folder is a site's own: a run's folder, old ledgers, the budget, or a log."""
    if path.name == LEDGERS:
        return True
    if not path.is_dir():
        return any(name in path.name for name in _FILES_OF_ALL_RUNS)  # temporary files contain the name
    found = [each.name for each in path.iterdir()]
    return not found or any(name in found for name in _FILES_OF_A_RUN)
