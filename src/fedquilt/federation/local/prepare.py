"""Before a rehearsal: is it possible at all? And a copy of each site that keeps its state in the rehearsal's folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedquilt.common.files import plain, write_text
from fedquilt.common.lock import HeldError, locked
from fedquilt.errors import FedquiltError
from fedquilt.federation.local.rehearsal import tool
from fedquilt.federation.site.check import check_site
from fedquilt.federation.site.config import SITE_YAML, SiteConfig, read_site
from fedquilt.runs.folder import FEDERATION

if TYPE_CHECKING:
    from fedquilt.federation.coordinator.coordinator import Order

RUN, SITES, LOGS, PRIVATE, LOCK = "run", "sites", "logs", "private", ".lock"


@contextmanager
def prepared(sites: Sequence[Path], order: Mapping[str, Any], out: Path) -> Iterator[tuple[list[Path], dict[str, Any]]]:
    """Hold `out` for the block, with a copy of each site: these site.yaml files, and the run config.

    What cannot work is refused with a sentence, before anything is written.
    """
    tool("flower-superlink")
    from fedquilt.federation.coordinator.coordinator import Order

    out = _full(out)
    # In the order of their names: a site is the same node again, however the sites are listed.
    configs = sorted((read_site(path) for path in sites), key=lambda config: config.name)
    whole = {**order, "sites": len(sites), "out": str(out / RUN)}
    asked = Order.read(whole)
    _check_sites(configs, asked, out)
    _check_folder(configs, asked, out)
    with ExitStack() as held:
        try:
            out.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(out / LOCK, out))
            _check_folder(configs, asked, out)  # another rehearsal may have come and gone meanwhile
            copies = _copies(configs, out)
        except OSError as error:
            raise _unwritable(out, error) from error
        yield copies, whole


def _full(out: Path) -> Path:
    """The folder's whole path; refused where it could not be written to."""
    try:
        out = out.resolve()
        there = next(place for place in (out, *out.parents) if place.exists())
        if not there.is_dir():
            raise FedquiltError(f"{out} cannot be made: {there} is a file; choose another --out.")
        with tempfile.TemporaryFile(dir=there):
            pass
    except (OSError, RuntimeError) as error:
        raise _unwritable(out, error) from error
    return out


def _unwritable(out: Path, error: Exception) -> FedquiltError:
    why = getattr(error, "strerror", None) or error
    return FedquiltError(f"{out} cannot be written to ({why}); choose another --out.")


def _check_sites(configs: Sequence[SiteConfig], asked: Order, out: Path) -> None:
    """Refuse sites that are not ready, do not fit together, or do not permit what is asked."""
    from fedquilt.federation.coordinator.coordinator import check_order
    from fedquilt.federation.coordinator.roster import Introduction, check_alike
    from fedquilt.federation.site.requests import introduction

    names = [config.name for config in configs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FedquiltError(f"Two sites are called '{twice}'; every site needs a name of its own.")
    for config in configs:
        try:
            _check_site(config, out)
        except FedquiltError as error:
            why = str(error)
            raise FedquiltError(f"Site '{config.name}' is not ready: {why[0].lower()}{why[1:]}") from error
    who = [Introduction.read(introduction(config)) for config in configs]
    check_alike(who)
    check_order(asked, who)


def _check_site(config: SiteConfig, out: Path) -> None:
    """Try a site as `fedquilt site check` does, as its copy would be: it is not its own state folder that is written to."""
    with tempfile.TemporaryDirectory() as folder:
        check_site(_copy(config, Path(folder) / SITE_YAML, out))


def _check_folder(configs: Sequence[SiteConfig], asked: Order, out: Path) -> None:
    """Refuse a folder that has something else in it, or another rehearsal, or one that is over."""
    there = {each.name for each in out.iterdir()} if out.is_dir() else set()
    foreign = sorted(there - {RUN, SITES, LOGS, PRIVATE, LOCK} if LOCK in there else there)
    if foreign:
        raise FedquiltError(f"{out} has something else in it ('{foreign[0]}'); choose another --out.")
    if (out / RUN / "result.json").exists():
        with suppress(HeldError, OSError), locked(out / LOCK, out):  # of one that was killed in its last moments
            shutil.rmtree(out / PRIVATE, ignore_errors=True)
        raise FedquiltError(f"{out} holds a rehearsal that is over; choose another --out.")
    if (out / RUN / "config.json").exists():
        _check_same(configs, asked, out)


def _check_same(configs: Sequence[SiteConfig], asked: Order, out: Path) -> None:
    """Refuse to go on with another rehearsal than the one in the folder."""
    from fedquilt.federation.coordinator.coordinator import SAME

    try:
        config = json.loads((out / RUN / "config.json").read_bytes())
        kept, names = config["order"], config[FEDERATION]["sites"]
        wanted = plain(asked.model_dump())
        changed = next((name for name in SAME if kept.get(name) != wanted[name]), None)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FedquiltError(f"{out / RUN} cannot be gone on with; choose another --out.") from None
    if changed is None and names != [config.name for config in configs]:
        changed = "sites"
    if changed is not None:
        was = ", ".join(names) if changed == "sites" else json.dumps(kept.get(changed))
        option = changed.replace("_", "-")
        raise FedquiltError(
            f"{out} holds a rehearsal with another {option} ({was}); choose another --out, or ask for the same."
        )


def _copies(configs: Sequence[SiteConfig], out: Path) -> list[Path]:
    if not (out / RUN / "config.json").exists():
        # No node is known by its key yet; and the database may have a run in it that has still to begin.
        shutil.rmtree(out / PRIVATE, ignore_errors=True)
    return [_copy(config, out / SITES / config.name / SITE_YAML, out) for config in configs]


def _copy(config: SiteConfig, path: Path, out: Path) -> Path:
    """A site.yaml for the rehearsal: what is private is kept under `out`."""
    values = config.model_dump(exclude_none=True) | {"state": str(out / SITES / config.name / "state")}
    write_text(path, yaml.safe_dump(values, sort_keys=False))
    return path
