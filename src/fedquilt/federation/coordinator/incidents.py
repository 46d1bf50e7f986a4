"""Incidents: what went wrong at which site, as lines of the run folder's incidents.jsonl and in the log."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

from fedquilt.common.files import open_to_append, write_all
from fedquilt.common.printable import printable

_log = logging.getLogger("flwr")


class Incidents:
    """All incidents of this process, appended to the file `path` (None: kept in memory only)."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.all: list[dict[str, Any]] = []

    def add(self, round: int | None, site: str | None, what: str, reason: str) -> None:
        """Add an incident: `what` is a word to count by, `reason` a sentence.

        A site may have written part of the reason, so characters that are not printable are escaped: they could forge lines
        of the log.
        """
        reason = printable(reason)
        line = {"time": time.time(), "round": round, "site": site, "what": what, "reason": reason}
        self.all.append(line)
        _log.warning("fedquilt: %s", reason)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open_to_append(self.path) as file:
                write_all(file, (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8"))
