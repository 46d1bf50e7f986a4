"""What went wrong at whose site: a line each in the run folder's incidents.jsonl, and in the log."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

_log = logging.getLogger("flwr")


class Incidents:
    """Named reasons, kept in `path` (None: in memory only)."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.all: list[dict[str, Any]] = []

    def note(self, round: int | None, site: str | None, what: str, reason: str) -> None:
        """Note that something happened: `what` is a word to count by, `reason` a sentence.

        What a stranger wrote may be in it: what could make up lines of its own, or not be written, is replaced.
        """
        reason = "".join(letter if letter.isprintable() else "?" for letter in reason)
        line = {"time": time.time(), "round": round, "site": site, "what": what, "reason": reason}
        self.all.append(line)
        _log.warning("fedquilt: %s", reason)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
