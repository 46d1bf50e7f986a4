"""The store of finished cells: a folder for each, named by the cell's key and shared by all studies.

<into>/cells/<key>/            the cell's run folder, without models and checkpoints once it is done
                   cell.json   written last: the cell is done, with these facts
                   failed.json the cell failed, and why; it is tried again when the study is run again
       cells/<key>.lock        held while the cell runs, so that no two processes run the same cell
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.common.files import plain, write_json
from fedquilt.common.json_text import read_json
from fedquilt.common.lock import HeldError, locked
from fedquilt.common.new_folder import is_leftover
from fedquilt.common.sealed import facts_sha256
from fedquilt.errors import FedquiltError
from fedquilt.runs.compute_version import compute_version, run_kinds
from fedquilt.studies.cells import Cell

# Files and folders of a seed that a finished cell does not need.
_MODELS = ("checkpoints", "models.json", "models.safetensors", "server.json", "server.safetensors")
_REQUIRED = {"identity", "code", "measures", "finished", "device", "versions"}  # what a report reads of cell.json
_SEAL = "sha256"  # the key in cell.json of a hash over the rest


@dataclass(frozen=True)
class StoredCell:
    """A finished cell in the store.

    Attributes:
        folder: its run folder.
        facts: the content of cell.json: identity, code, measures, versions, device, ...
    """

    folder: Path
    facts: dict[str, Any]

    @property
    def measures(self) -> dict[str, float | None]:
        """By name, the values that were measured."""
        return self.facts["measures"]

    @property
    def stale(self) -> bool:
        """Whether it was finished by another version of the computation than the installed one."""
        config = self.facts.get("config", {})
        method = None if self.facts.get("kind") == "partition" else config.get("method")
        now = compute_version(method, run_kinds(config))
        return self.facts.get("code", now) != now


class CellStore:
    """The cells in a folder. Every call reads the disk, so that several processes see the same state."""

    def __init__(self, into: Path) -> None:
        self.into = Path(into)

    @property
    def cells(self) -> Path:
        """The folder with a folder for each cell."""
        return self.into / "cells"

    def folder(self, cell: Cell) -> Path:
        """The folder of a cell, whether it exists or not."""
        return self.cells / cell.key

    def folder_of(self, key: str) -> Path:
        """The folder of the cell with this key, whether it exists or not."""
        return self.cells / key

    def get(self, cell: Cell) -> StoredCell | None:
        """A finished cell; None where it is not done."""
        return read_cell(self.folder(cell))

    @contextmanager
    def lock(self, cell: Cell | str) -> Iterator[bool]:
        """Lock a cell, or the one with a key, for a block: True, or False where another process holds the lock."""
        path = self.folder_of(cell) if isinstance(cell, str) else self.folder(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(path.with_suffix(".lock"), path))
            except HeldError:
                yield False
            else:
                yield True

    def finish(self, cell: Cell, facts: dict[str, Any], keep_models: bool) -> None:
        """Mark a cell as done, then clean up its folder."""
        own = {"identity": cell.identity, "code": cell.code, "models": keep_models}
        own |= {} if cell.named == cell.identity else {"named": cell.named}
        whole = plain({**own, **facts})
        write_json(self.folder(cell) / "cell.json", {**whole, _SEAL: facts_sha256(whole)})
        self.clean_up(cell)

    def clean_up(self, cell: Cell) -> None:
        """Delete what a finished cell does not need; a kill may have come between the two steps of `finish`."""
        stored = self.get(cell)
        if stored is not None:
            (stored.folder / "failed.json").unlink(missing_ok=True)
            if not stored.facts.get("models", True):
                self.delete_models(cell)

    def delete_models(self, cell: Cell) -> None:
        """Delete the checkpoints and models of a cell."""
        for seed in self.folder(cell).glob("seed-*"):
            for name in _MODELS:
                path = seed / name
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)  # another process may do the same
                else:
                    path.unlink(missing_ok=True)

    def fail(self, cell: Cell, sentence: str) -> None:
        """Write down why a cell failed."""
        write_json(self.folder(cell) / "failed.json", {"identity": cell.identity, "why": sentence})

    def by_identity(self) -> dict[str, StoredCell]:
        """All finished cells by identity; of several with the same one, the present version's, then the newest.

        Those on a user's own graph stand there as `Cell.named` too, which a machine without the graph asks for.
        """
        found: dict[str, StoredCell] = {}
        for stored in filter(None, map(read_cell, self._folders())):
            for name in {stored.facts["identity"], stored.facts.get("named", stored.facts["identity"])}:
                before = found.get(name)
                if before is None or _preference(stored) > _preference(before):
                    found[name] = stored
        return found

    def failures(self) -> dict[str, str]:
        """By identity, why cells failed that are not done."""
        out: dict[str, str] = {}
        for folder in self._folders():
            if (folder / "cell.json").is_file():
                continue
            with suppress(OSError, ValueError, KeyError, TypeError):
                facts = read_json(folder / "failed.json")
                out[facts["identity"]] = facts["why"]
        return out

    def _folders(self) -> list[Path]:
        found = self.cells.glob("*") if self.cells.is_dir() else ()
        return sorted(path for path in found if path.is_dir() and not is_leftover(path.name))


def _preference(stored: StoredCell) -> tuple[bool, float]:
    return not stored.stale, stored.facts["finished"]


def is_whole(facts: Any) -> bool:
    """Whether the content of a cell.json has what a report reads, and is what was sealed."""
    return isinstance(facts, dict) and facts.keys() >= _REQUIRED and _verifies(facts)


def _verifies(facts: dict[str, Any]) -> bool:
    """Whether a cell says what was sealed when it was finished; earlier versions sealed nothing."""
    try:
        return _SEAL not in facts or facts[_SEAL] == facts_sha256({k: v for k, v in facts.items() if k != _SEAL})
    except ValueError:  # a number that is not finite, which none of ours is
        return False


def read_cell(folder: Path) -> StoredCell | None:
    """The finished cell in a folder; None where it is not done."""
    try:
        facts = read_json(folder / "cell.json")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        facts = None
    if not is_whole(facts):
        raise FedquiltError(f"{folder / 'cell.json'} is damaged; delete {folder} and run the study again.")
    return StoredCell(folder, facts)
