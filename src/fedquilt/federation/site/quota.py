"""A site's quota: how many runs, bytes and requests a coordinator gets from it, and how large a model."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.common.lock import HeldError, locked
from fedquilt.federation.protocol import RefusedError
from fedquilt.federation.site.config import SiteConfig
from fedquilt.federation.site.contacts import count_request
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.log import SiteLog
from fedquilt.federation.site.state import LEDGERS, SiteState, make_private, make_state_private, run_folders
from fedquilt.methods.base import Method

GIGABYTE = 10**9
USUAL_NODES = 5000  # for which the size of a run is estimated
ABANDONED_DAYS = 30.0  # a run without a request for so long is taken as finished
_DAY = 86_400.0
_LOCK, _LOCK_SECONDS = ".quota.lock", 10.0


class QuotaError(RefusedError):
    """A request beyond the site's quota."""


@dataclass(frozen=True)
class Usage:
    """What runs take up of a site: how many are there, and the bytes of their folders and of all ledgers."""

    runs: int
    bytes: int


def usage(state: Path) -> Usage:
    """What runs take up of a state folder."""
    folders = run_folders(state)
    return Usage(len(folders), sum(map(_bytes_in, [*folders, state / LEDGERS])))


class QuotaKeeper:
    """Refuses what is beyond a site's quota, and deletes old runs where that makes room.

    Nothing here reads the site's graph: only names, sizes and times of what earlier requests left, and the request.
    """

    def __init__(self, config: SiteConfig, log: SiteLog) -> None:
        self.config, self.quota, self.log = config, config.quota, log
        self.state = Path(config.state)

    def count(self, kind: Any) -> None:
        """Count a request; QuotaError where there were too many of its kind today. The first of those is an incident."""
        number, limit = count_request(self.state, kind, self.quota.requests), self.quota.requests
        if number > limit:
            name = kind if isinstance(kind, str) else "unreadable"
            refusal = (
                f"Site '{self.config.name}' answers {limit:,} requests of a kind a day, and there were more of '{name[:20]}' "
                "today; ask again tomorrow, or have the site raise 'requests' of its quota."
            )
            if number == limit + 1:
                self.log.incident("quota", refusal)
            raise QuotaError(refusal)

    def admit(self, run: str) -> None:
        """Make sure that a request of a run is within the quota, and that the run has a folder."""
        make_state_private(self.state)
        with locked(self.state / _LOCK, self.state, _LOCK_SECONDS):
            self._make_room(run)
            make_private(self.state / run)

    def check_size(self, method: Method) -> None:
        """Refuse a method whose weights or layers would be too large here; nothing of them is made for that.

        The number of nodes is a usual one and not the site's own: by asking for more and more hidden units, a coordinator
        would learn that from where refusals begin, without noise and unpaid.
        """
        if method.size(USUAL_NODES) > self.quota.numbers:
            raise QuotaError(
                f"The run's model is larger than site '{self.config.name}' permits ('numbers' of its quota); ask for a smaller "
                "one, such as with fewer hidden units."
            )

    def _make_room(self, run: str) -> None:
        """Delete finished runs, oldest first, until a request of `run` is within the quota."""
        while (excess := self._excess(run)) is not None:
            if not any(map(self._prune, self._prunable(run))):
                raise QuotaError(
                    f"Site '{self.config.name}' has no room for this run: {excess}, and no finished run is old enough to be "
                    f"deleted for it; have the site delete runs in its state folder, or change its quota."
                )

    def _excess(self, run: str) -> str | None:
        """What is beyond the quota with a request of `run`, in words; None where nothing is."""
        found, new = usage(self.state), not (self.state / run).is_dir()
        if found.runs + new > self.quota.runs:
            return f"it keeps {self.quota.runs:,} runs"
        if found.bytes > self.quota.gigabytes * GIGABYTE:
            return f"its runs take up {self.quota.gigabytes:g} gigabytes"
        return None

    def _prunable(self, run: str) -> Iterable[Path]:
        """The folders of other runs that may be deleted, the one that was used longest ago first.

        The run that was finished last stays: `fedquilt predict` uses its model.
        """
        others = [folder for folder in run_folders(self.state) if folder.name != run]
        used = {folder: _last_use(folder) for folder in others}
        finished = [folder for folder in others if SiteState(folder).facts().get("finished") is True]
        newest = max(finished, key=used.__getitem__, default=None)
        now = time.time()
        for folder in sorted(others, key=used.__getitem__):
            least = self.quota.days if folder in finished else max(self.quota.days, ABANDONED_DAYS)
            if folder != newest and now - used[folder] >= least * _DAY:
                yield folder

    def _prune(self, folder: Path) -> bool:
        """Delete a run's folder but not its ledger; False where a process is working on the run."""
        state = SiteState(folder)
        try:
            with locked(state.lock_path, folder):
                Ledger(folder).archive(self.state, folder.name)
                for each in folder.iterdir():
                    if each != state.lock_path:
                        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
                shutil.rmtree(folder)
        except HeldError:
            return False
        self.log.note(f"Deleted run {folder.name} to make room for another; its ledger is kept in {LEDGERS}.")
        return True


def _last_use(folder: Path) -> float:
    """When a run was last asked for, in seconds since 1970: as noted, or by its files' times."""
    noted = SiteState(folder).facts().get("last_seconds")
    if isinstance(noted, int | float) and not isinstance(noted, bool):
        return float(noted)
    times = [folder.stat().st_mtime, *(each.stat().st_mtime for each in folder.rglob("*") if not each.is_symlink())]
    return max(times)


def _bytes_in(folder: Path) -> int:
    """The bytes of all files in a folder; links count as nothing."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except FileNotFoundError:  # another process deleted it meanwhile
                continue
    return total
