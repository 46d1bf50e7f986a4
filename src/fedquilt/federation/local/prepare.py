"""Before a rehearsal: checks that it is possible, and copies each site so that its state is in the rehearsal's folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from fedquilt.common.files import plain, write_text
from fedquilt.common.json_text import read_json
from fedquilt.common.lock import HeldError, locked
from fedquilt.common.private_files import make_private_folder
from fedquilt.common.writable import check_folder_writable, refused_where_unwritable
from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.config import FIXED_FIELDS, FederationConfig
from fedquilt.federation.coordinator.planning import check_same_widths, plan_method
from fedquilt.federation.local.rehearsal import find_tool
from fedquilt.federation.site.check import check_site
from fedquilt.federation.site.config import SITE_YAML, SiteConfig, read_site
from fedquilt.federation.site.permits import DEFAULT_PERMITS, METRICS_PERMIT, in_words, permits_needed, upload_names
from fedquilt.federation.site.site import Site
from fedquilt.methods.base import RunContext, find_method
from fedquilt.methods.settings import resolve_settings
from fedquilt.runs.folder import FEDERATION

ADVICE = "choose another --out"
RUN, SITES, LOGS, PRIVATE, LOCK = "run", "sites", "logs", "private", ".lock"


@contextmanager
def prepared(
    sites: Sequence[Path], options: Mapping[str, Any], out: Path, say: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[list[Path], dict[str, Any]]]:
    """Lock `out` for the block and copy the sites there; gives the copied site.yaml files and the whole run config.

    What cannot work is refused with a sentence, before anything is written. `say` is called with what the sites need for a real
    federation and do not say yet.
    """
    find_tool("flower-superlink")
    out = _writable_path(out)
    # Sorted by name, so that a resumed site is the same node again in whatever order the sites are listed.
    configs = sorted((read_site(path) for path in sites), key=lambda config: config.name)
    run_config = {**options, "sites": len(sites), "out": str(out / RUN)}
    federation = FederationConfig.read(run_config)
    configs, note = _with_permits(configs, federation)
    _check_sites(configs, federation, out)
    _check_folder(configs, federation, out)
    with ExitStack() as held:
        with refused_where_unwritable(out, ADVICE):
            out.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(out / LOCK, out))
            _check_folder(configs, federation, out)  # again: another rehearsal may have written to it meanwhile
            copies = _copies(configs, out)
        if note:
            say(note)
        yield copies, run_config


def _writable_path(out: Path) -> Path:
    """The folder's absolute path; refused where it cannot be written to."""
    with refused_where_unwritable(out, ADVICE):
        out = out.resolve()
    check_folder_writable(out, ADVICE)
    return out


def _with_permits(configs: Sequence[SiteConfig], federation: FederationConfig) -> tuple[list[SiteConfig], str]:
    """The sites, where those that do not say what may leave permit what the method needs, and a sentence that says so.

    In a rehearsal nothing leaves this machine. A site.yaml that says what may leave is kept to.
    """
    silent = [config.name for config in configs if "permits" not in config.model_fields_set]
    if not silent:
        return list(configs), ""
    kind = find_method(federation.method)
    context = RunContext(
        *(federation.dataset, federation.partition, federation.metric, 8, 2, len(configs), federation.epochs or 1, 0),
        task=federation.task,
        task_settings=federation.task_settings,
    )
    method = kind(*resolve_settings(kind, context, federation.settings, federation.epochs or None))
    needed = permits_needed(upload_names(method), method.uploads)
    word = list(dict.fromkeys([*DEFAULT_PERMITS, *needed, METRICS_PERMIT]))
    note = (
        f"Sites {in_words(silent)} do not say what may leave (permits). Nothing leaves this machine in a rehearsal, so it lets "
        f"out what {federation.method} sends; for a federation write 'permits: [{', '.join(word)}]' in site.yaml."
    )
    return [c.model_copy(update={"permits": word}) if c.name in silent else c for c in configs], note


def _check_sites(configs: Sequence[SiteConfig], federation: FederationConfig, out: Path) -> None:
    """Refuse sites that are not ready, do not fit together, or do not permit the method."""
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
    introductions = [Site(config).introduction() for config in configs]
    check_same_widths(introductions, federation.task)
    plan_method(federation, introductions)


def _check_site(config: SiteConfig, out: Path) -> None:
    """Check a site's copy as `fedquilt site check` does: the rehearsal writes to that one's state folder."""
    with tempfile.TemporaryDirectory() as folder:
        check_site(_copy(config, Path(folder) / SITE_YAML, out))


def _check_folder(configs: Sequence[SiteConfig], federation: FederationConfig, out: Path) -> None:
    """Refuse a folder that holds other files, another rehearsal, or one that is finished."""
    there = {each.name for each in out.iterdir()} if out.is_dir() else set()
    foreign = sorted(there - {RUN, SITES, LOGS, PRIVATE, LOCK} if LOCK in there else there)
    if foreign:
        raise FedquiltError(f"{out} has something else in it ('{foreign[0]}'); choose another --out.")
    if (out / RUN / "result.json").exists():
        with suppress(HeldError, OSError), locked(out / LOCK, out):  # left by one that was killed at its end
            shutil.rmtree(out / PRIVATE, ignore_errors=True)
        raise FedquiltError(f"{out} holds a rehearsal that is over; choose another --out.")
    if (out / RUN / "config.json").exists():
        _check_same(configs, federation, out)


def _check_same(configs: Sequence[SiteConfig], federation: FederationConfig, out: Path) -> None:
    """Refuse to resume a rehearsal with other sites or another configuration."""
    try:
        config = read_json(out / RUN / "config.json")
        saved, names = config["order"], config[FEDERATION]["sites"]
        wanted = plain(federation.model_dump())
        usual = FederationConfig.model_fields  # of a field that a rehearsal began without, its default
        changed = next((n for n in FIXED_FIELDS if saved.get(n, usual[n].default) != wanted[n]), None)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FedquiltError(f"{out / RUN} cannot be gone on with; choose another --out.") from None
    if changed is None and names != [config.name for config in configs]:
        changed = "sites"
    if changed is not None:
        was = ", ".join(names) if changed == "sites" else json.dumps(saved.get(changed))
        option = changed.replace("_", "-")
        raise FedquiltError(
            f"{out} holds a rehearsal with another {option} ({was}); choose another --out, or ask for the same."
        )


def _copies(configs: Sequence[SiteConfig], out: Path) -> list[Path]:
    if not (out / RUN / "config.json").exists():
        # No run was begun: start with new keys, and without requests that are left in the database.
        shutil.rmtree(out / PRIVATE, ignore_errors=True)
    return [_copy(config, out / SITES / config.name / SITE_YAML, out) for config in configs]


def _copy(config: SiteConfig, path: Path, out: Path) -> Path:
    """Write a site.yaml for the rehearsal, with its state folder under `out`."""
    values = config.model_dump(exclude_none=True) | {"state": str(out / SITES / config.name / "state")}
    make_private_folder(path.parent)
    write_text(path, yaml.safe_dump(values, sort_keys=False))
    return path
