"""A site's own log: a readable line for every event, and a line of JSON for every incident. Both are limited in size."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedquilt.common.json_lines import JsonLines
from fedquilt.common.lock import HeldError, locked
from fedquilt.common.printable import printable, shortened
from fedquilt.common.private_files import append_private
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.state import make_state_private

LOG, INCIDENTS = "site.log", "incidents.jsonl"
MAX_BYTES = 2**20  # of a file; a full one is renamed to `<name>.1`, in place of the one before
_LOCK, _LOCK_SECONDS = ".log.lock", 2.0
_LONGEST = 500  # characters of a line; a coordinator wrote part of some


class SiteLog:
    """The log in a site's state folder: ``site.log`` to read, ``incidents.jsonl`` to count; each with its predecessor ``.1``.

    A log that cannot be written (the disk is full) stops nothing.
    """

    def __init__(self, state: str | os.PathLike[str]) -> None:
        self.folder = Path(state)

    def note(self, text: str) -> None:
        """Write a line to the log."""
        self._append(LOG, f"{_now()} {_one_line(text)}\n")

    def incident(self, what: str, reason: str, run: str | None = None, round: int | None = None) -> None:
        """Note that something went wrong: `what` is a word to count by, `reason` a sentence."""
        where = "" if run is None else f" (run {run}" + ("" if round is None else f", round {round}") + ")"
        line = {"at": _now(), "what": what, "run": run, "round": round, "reason": _one_line(reason)}
        self._append(INCIDENTS, json.dumps(line, ensure_ascii=False) + "\n")
        self.note(f"INCIDENT {what}{where}: {reason}")

    def incidents(self) -> list[dict[str, Any]]:
        """The incidents that are in the two files, oldest first. A file that was damaged counts as one incident."""
        found: list[dict[str, Any]] = []
        for name in (f"{INCIDENTS}.1", INCIDENTS):
            path = self.folder / name
            try:
                found += JsonLines(path, lambda line: "what" in line, "an incident").read()
            except FedquiltError as error:
                found.append({"at": None, "what": "damaged", "run": None, "round": None, "reason": str(error)})
        return found

    def _append(self, name: str, text: str) -> None:
        path = self.folder / name
        with suppress(OSError):
            make_state_private(self.folder)
            with suppress(HeldError), locked(self.folder / _LOCK, path, _LOCK_SECONDS):
                if path.exists() and path.stat().st_size + len(text) > MAX_BYTES:
                    os.replace(path, path.with_name(f"{name}.1"))
            append_private(path, text.encode("utf-8", "replace"), sync=False)


def _one_line(text: str) -> str:
    """One line without what could forge lines or change what a terminal shows, and not too long."""
    return shortened(printable(text), _LONGEST)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
