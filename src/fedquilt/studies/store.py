"""Where the cells of all studies are kept: a folder each, named by its key, so that no run is done twice.

<into>/cells/<key>/            the cell's run folder, without models and checkpoints once it is done
                   cell.json   written last: the cell is done, and this came of it
                   failed.json the cell failed, and why; it is tried again when the study is run again
       cells/<key>.lock        held while the cell runs, so that two processes never run the same one
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.common.files import write_json
from fedquilt.common.lock import HeldError, locked
from fedquilt.errors import FedquiltError
from fedquilt.studies.cells import Cell
from fedquilt.studies.compute_version import compute_version

_HEAVY = ("checkpoints", "models.json", "models.safetensors", "server.json", "server.safetensors")
_FACTS = {"identity", "code", "measures", "finished", "device", "versions"}  # what a report reads of cell.json


@dataclass(frozen=True)
class StoredCell:
    """A cell that is done.

    Attributes:
        folder: where it is.
        facts: what cell.json holds: identity, code, measures, versions, device, ...
    """

    folder: Path
    facts: dict[str, Any]

    @property
    def measures(self) -> dict[str, float | None]:
        """By name, what was read off the run."""
        return self.facts["measures"]


class CellStore:
    """The cells in a folder. Nothing is remembered between calls, so that several processes see the same."""

    def __init__(self, into: Path) -> None:
        self.into = Path(into)

    @property
    def _cells(self) -> Path:
        return self.into / "cells"

    def folder(self, cell: Cell) -> Path:
        """Where a cell is kept."""
        return self._cells / cell.key

    def done(self, cell: Cell) -> StoredCell | None:
        """What is kept of a cell that is done; None where it is not."""
        return _read(self.folder(cell))

    @contextmanager
    def hold(self, cell: Cell) -> Iterator[bool]:
        """Hold a cell for a block: True, or False where another process holds it."""
        path = self.folder(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(path.with_suffix(".lock"), path))
            except HeldError:
                yield False
            else:
                yield True

    def finish(self, cell: Cell, facts: dict[str, Any], keep_models: bool) -> None:
        """Mark a cell as done, then drop what is only needed to go on."""
        whose = {"identity": cell.identity, "code": compute_version(), "models": keep_models}
        write_json(self.folder(cell) / "cell.json", {**whose, **facts})
        self.tidy(cell)

    def tidy(self, cell: Cell) -> None:
        """Take the steps after the first of `finish`; a kill may have come between them."""
        kept = self.done(cell)
        if kept is not None:
            (kept.folder / "failed.json").unlink(missing_ok=True)
            if not kept.facts.get("models", True):
                self.lighten(cell)

    def lighten(self, cell: Cell) -> None:
        """Drop the checkpoints and models of a cell that is done."""
        for seed in self.folder(cell).glob("seed-*"):
            for name in _HEAVY:
                path = seed / name
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)  # another process may do the same
                else:
                    path.unlink(missing_ok=True)

    def fail(self, cell: Cell, sentence: str) -> None:
        """Note why a cell failed."""
        write_json(self.folder(cell) / "failed.json", {"identity": cell.identity, "why": sentence})

    def by_identity(self) -> dict[str, StoredCell]:
        """All cells that are done, by what was asked: of several, those by the present code first, then the newest."""
        found: dict[str, StoredCell] = {}
        for folder in self._folders():
            kept = _read(folder)
            if kept is not None:
                before = found.get(kept.facts["identity"])
                if before is None or _preference(kept) > _preference(before):
                    found[kept.facts["identity"]] = kept
        return found

    def failures(self) -> dict[str, str]:
        """By what was asked, why cells failed that are not done."""
        out: dict[str, str] = {}
        for folder in self._folders():
            if (folder / "cell.json").is_file():
                continue
            with suppress(OSError, ValueError, KeyError, TypeError):
                facts = json.loads((folder / "failed.json").read_bytes())
                out[facts["identity"]] = facts["why"]
        return out

    def _folders(self) -> list[Path]:
        return sorted(path for path in self._cells.glob("*") if path.is_dir()) if self._cells.is_dir() else []


def _preference(kept: StoredCell) -> tuple[bool, float]:
    return kept.facts["code"] == compute_version(), kept.facts["finished"]


def _read(folder: Path) -> StoredCell | None:
    try:
        facts = json.loads((folder / "cell.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not facts.keys() >= _FACTS:
        raise FedquiltError(f"{folder / 'cell.json'} is damaged; delete {folder} and run the study again.")
    return StoredCell(folder, facts)
