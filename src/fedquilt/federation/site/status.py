"""`fedquilt site status`: what a site did so far, from what it noted on its own disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.config import SiteConfig, read_site
from fedquilt.federation.site.contacts import read_contacts
from fedquilt.federation.site.ledger import Ledger, all_ledgers
from fedquilt.federation.site.log import SiteLog
from fedquilt.federation.site.quota import GIGABYTE, usage
from fedquilt.federation.site.state import SiteState, run_folders

SHOWN_INCIDENTS = 20


@dataclass(frozen=True)
class Left:
    """What left a site under one name: how many times, and how many bytes in all."""

    times: int
    bytes: int


@dataclass(frozen=True)
class RunStatus:
    """One run at a site.

    Attributes:
        run: its name; method: the method's name, None where it was not noted.
        trained, rounds: how many rounds the site trained of how many that are planned; None where it was not noted.
        first, last: when it was first and last asked for.
        state: "finished", "open", or "deleted" where only the ledger is left.
        left: what left, by name.
    """

    run: str
    method: str | None
    trained: int | None
    rounds: int | None
    first: str | None
    last: str | None
    state: str
    left: dict[str, Left]

    @property
    def bytes(self) -> int:
        """How many bytes left in the run."""
        return sum(each.bytes for each in self.left.values())


@dataclass(frozen=True)
class SiteStatus:
    """What `site_status` found.

    Attributes:
        name, state: of the site.
        first_contact, last_contact: when a coordinator first and last asked for something; None: never.
        requests: how many requests of each kind were answered or refused, those beyond the quota not counted.
        rounds: how many rounds the site trained, over all runs that noted it.
        runs: each run, the one that was last asked for last.
        left: what left in all runs, by name.
        epsilon: what was spent of the privacy budget; None without dp. budget: the limit; None where there is none.
        protected_uploads: how many uploads were paid for.
        disk_bytes: what runs and ledgers take up; quota: what they may.
        incidents: the newest ones; incident_count: how many there are in the site's log.
    """

    name: str
    state: str
    first_contact: str | None
    last_contact: str | None
    requests: dict[str, int]
    rounds: int
    runs: list[RunStatus]
    left: dict[str, Left]
    epsilon: float | None
    budget: float | None
    protected_uploads: int
    disk_bytes: int
    quota: dict[str, float]
    incidents: list[dict[str, Any]]
    incident_count: int

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self)


def site_status(path: str | os.PathLike[str]) -> SiteStatus:
    """What the site of a site.yaml did so far; nothing is written, and the graph is not read."""
    site = read_site(path)
    try:
        return _status(site)
    except PermissionError as error:
        raise FedquiltError(
            f"{error.filename or site.state} cannot be read by this user ({error.strerror}); "
            "run this as the user who runs the site."
        ) from error


def _status(site: SiteConfig) -> SiteStatus:
    state = Path(site.state)
    contacts, log = read_contacts(state), SiteLog(state)
    runs = _runs(state)
    incidents = log.incidents()
    budget = None if site.dp is None else Budget(state, site.dp)
    used = usage(state)
    return SiteStatus(
        name=site.name,
        state=site.state,
        first_contact=contacts.first,
        last_contact=contacts.last,
        requests=contacts.total,
        rounds=sum(run.trained or 0 for run in runs),
        runs=runs,
        left=_sum_of(run.left for run in runs),
        epsilon=None if budget is None else budget.spent(),
        budget=None if site.dp is None else site.dp.epsilon,
        protected_uploads=0 if budget is None else budget.uploads,
        disk_bytes=used.bytes,
        quota={"runs": site.quota.runs, "bytes": site.quota.gigabytes * GIGABYTE},
        incidents=incidents[-SHOWN_INCIDENTS:],
        incident_count=len(incidents),
    )


def _runs(state: Path) -> list[RunStatus]:
    ledgers: dict[str, list[Ledger]] = {}
    for run, ledger in all_ledgers(state):
        ledgers.setdefault(run, []).append(ledger)
    folders = {folder.name: SiteState(folder).facts() for folder in run_folders(state)}
    found = [_run(run, folders.get(run), ledgers.get(run, [])) for run in {**folders, **ledgers}]
    return sorted(found, key=lambda run: (run.last or "", run.run))


def _run(run: str, facts: Mapping[str, Any] | None, ledgers: Iterable[Ledger]) -> RunStatus:
    lines = [line for ledger in ledgers for line in ledger.lines()]
    left: dict[str, Left] = {}
    for line in lines:
        before = left.get(line["name"], Left(0, 0))
        left[line["name"]] = Left(before.times + 1, before.bytes + line["bytes"])
    times = sorted(str(line["at"]) for line in lines if "at" in line)
    known = facts or {}
    state = "deleted" if facts is None else "finished" if known.get("finished") is True else "open"
    method, trained, rounds = known.get("method"), known.get("trained"), known.get("rounds")
    return RunStatus(
        run=run,
        method=method if isinstance(method, str) else None,
        trained=trained if type(trained) is int else None,
        rounds=rounds if type(rounds) is int else None,
        first=_text(known.get("first")) or (times[0] if times else None),
        last=_text(known.get("last")) or (times[-1] if times else None),
        state=state,
        left=left,
    )


def _sum_of(parts: Iterable[Mapping[str, Left]]) -> dict[str, Left]:
    total: dict[str, Left] = {}
    for part in parts:
        for name, left in part.items():
            before = total.get(name, Left(0, 0))
            total[name] = Left(before.times + left.times, before.bytes + left.bytes)
    return total


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
