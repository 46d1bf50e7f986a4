"""When a coordinator asked a site, and how often: for `fedquilt site status`, and for the limit on requests."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedquilt.common.lock import locked
from fedquilt.common.private_files import write_private_json
from fedquilt.federation.protocol import EVALUATE, FINISH, HELLO, ROUND, SECURE_STAGES
from fedquilt.federation.site.state import make_state_private

CONTACTS = "contacts.json"
KINDS = (HELLO, ROUND, EVALUATE, FINISH, *SECURE_STAGES)
UNREADABLE = "unreadable"  # the kind of a request that is none of these
_LOCK, _LOCK_SECONDS = ".site.lock", 10.0


@dataclass(frozen=True)
class Contacts:
    """What is noted about requests.

    Attributes:
        first, last: when the first and the last request came; None where none came.
        total: how many requests of each kind came, those over the limit not counted.
        day: a day (UTC); today: how many requests of each kind came on it.
    """

    first: str | None = None
    last: str | None = None
    total: dict[str, int] = field(default_factory=dict)
    day: str = ""
    today: dict[str, int] = field(default_factory=dict)


def read_contacts(state: str | os.PathLike[str]) -> Contacts:
    """What is noted in a state folder; nothing where there is no note, or none that can be read."""
    try:
        saved = json.loads((Path(state) / CONTACTS).read_bytes())
        total, today = _counts(saved["total"]), _counts(saved["today"])
        return Contacts(str(saved["first"]), str(saved["last"]), total, str(saved["day"]), today)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Contacts()


def count_request(state: str | os.PathLike[str], kind: Any, limit: int) -> int:
    """Count a request of a kind; returns how many of it came today, this one included, at most `limit` + 2.

    A request beyond `limit` + 1 changes nothing on the disk, so that asking for ever costs nothing.
    """
    kind = kind if kind in KINDS else UNREADABLE
    now = datetime.now(UTC)
    day, folder = now.date().isoformat(), Path(state)
    make_state_private(folder)
    with locked(folder / _LOCK, folder / CONTACTS, _LOCK_SECONDS):
        before = read_contacts(folder)
        today = before.today if before.day == day else {}
        number = today.get(kind, 0) + 1
        if number > limit + 1:
            return limit + 2
        at = now.isoformat(timespec="seconds")
        counted = int(number <= limit)
        write_private_json(
            folder / CONTACTS,
            {
                "first": before.first or at,
                "last": at,
                "total": before.total | {kind: before.total.get(kind, 0) + counted},
                "day": day,
                "today": today | {kind: number},
            },
            sync=False,
        )
    return number


def _counts(values: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): max(0, int(count)) for name, count in values.items()}
