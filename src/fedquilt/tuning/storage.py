"""The folder of a search: its configuration and Optuna's journal. A kill at any moment leaves it valid.

<folder>/tune.json       the configuration, the space, and fingerprints of graph, partitions and splits; a search with others is
                         refused in this folder
         journal.jsonl   a line for each step of each trial
         seal.json       length and hash of the journal after the last trial
         best.yaml       the best settings so far, as a config file
         history.png     validation metric by trial
         graph.npz       a graph that was given as an object
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from fedquilt.common.files import plain, write_json
from fedquilt.common.json_text import read_json
from fedquilt.common.lock import locked
from fedquilt.common.new_folder import LOCK, is_leftover, sweep_files
from fedquilt.common.sealed import DamagedError, read_facts, write_facts
from fedquilt.datasets.catalogue import in_catalogue
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig

CONFIG, JOURNAL, BEST, HISTORY, SEAL = "tune.json", "journal.jsonl", "best.yaml", "history.png", "seal.json"
GROUND = "ground"  # the key in tune.json of the fingerprints; earlier versions had none
_VERSIONS, _EDGES = "versions", "fingerprint"
_APART = (GROUND, _VERSIONS)  # compared apart from the rest, in words of their own, as is the fingerprint of the edges
# A search may be resumed with other values of these: the results are the same.
_IGNORED = ("data", "workers", "cohort_size", "checkpoint_seconds", _EDGES)


@contextmanager
def open_journal(folder: Path, facts: Mapping[str, Any], anyway: bool = False) -> Iterator[JournalStorage]:
    """Lock a search's folder for a block, create it if it does not exist, and open its journal.

    `facts` describe the search; a folder of another search is refused. With `anyway` the versions of packages may differ.
    """
    check_folder(folder, facts, anyway)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedquiltError(f"Cannot make a folder at {folder}: {error.strerror}.") from error
    with locked(folder / LOCK, folder):
        check_folder(folder, facts, anyway)  # another process may have created it meanwhile
        sweep_files(folder)
        if not (folder / CONFIG).exists():
            # The first file of a search: after a kill before it, the folder is as good as empty.
            write_json(folder / CONFIG, facts)
        yield _journal(folder / JOURNAL)


def seal_journal(folder: Path) -> None:
    """Seal the trials so far. The journal only grows, so that its beginning stays what was sealed."""
    data = (folder / JOURNAL).read_bytes()
    write_facts(folder / SEAL, {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})


def _check_journal(path: Path, data: bytes) -> None:
    """Refuse a journal whose sealed trials were changed."""
    seal = path.with_name(SEAL)
    if not seal.exists():  # no trial has ended yet, or an earlier version wrote the journal
        return
    try:
        facts = read_facts(seal)
        whole = hashlib.sha256(data[: facts["bytes"]]).hexdigest() == facts["sha256"] and len(data) >= facts["bytes"]
    except (DamagedError, KeyError, TypeError) as error:
        raise FedquiltError(
            f"{seal} is damaged: put it back from a copy, or choose another folder with --into."
        ) from error
    if not whole:
        raise FedquiltError(
            f"{path} was changed since its trials ended: put it back from a copy, or choose another folder with --into."
        )


def check_folder(folder: Path, facts: Mapping[str, Any], anyway: bool = False) -> None:
    """Refuse a folder that holds anything but the search that `facts` describe. Writes nothing."""
    if folder.exists() and not folder.is_dir():
        raise FedquiltError(f"{folder} is a file; choose another folder with --into.")
    if not (folder / CONFIG).exists():
        if folder.is_dir() and any(child.name != LOCK and not is_leftover(child.name) for child in folder.iterdir()):
            raise FedquiltError(f"{folder} holds something that is no search; choose another folder with --into.")
        return
    try:
        there = read_json(folder / CONFIG)
    except ValueError:
        raise FedquiltError(f"{folder / CONFIG} is not valid JSON; choose another folder with --into.") from None
    there, here = _with_later_options(there), plain(facts)
    if not isinstance(there, dict):
        raise FedquiltError(f"{folder / CONFIG} does not hold a search; choose another folder with --into.")
    before, now = ({name: value for name, value in each.items() if name not in _APART} for each in (there, here))
    found = difference(before, now) or _ground_difference(there, here)
    if found is not None:
        raise FedquiltError(f"{folder} holds another search: {found}; choose another folder with --into.")
    found = difference(there.get(_VERSIONS), here.get(_VERSIONS), "was begun with")
    if found is not None and not anyway:
        raise FedquiltError(
            f"{folder} holds a search that {found.removeprefix('it has ')}; choose another folder with --into, or insist with "
            "--anyway."
        )


def _ground_difference(first: dict[str, Any], second: dict[str, Any]) -> str | None:
    """Name the parts of the graph, or of the first cut, that are not those of a search; None where there are none."""
    there, here = first.get(GROUND), second.get(GROUND)
    if not (
        isinstance(there, dict) and isinstance(here, dict)
    ):  # an earlier version had a fingerprint of the edges only
        return difference(_edges(first), _edges(second), "edges with fingerprint")
    for place, parts in here.items():
        before = there.get(place)
        changed = [name for name in parts if not isinstance(before, dict) or before.get(name) != parts[name]]
        if changed:
            return f"{place} changed since it began ({', '.join(changed)})"
    return None


def _edges(facts: dict[str, Any]) -> Any:
    graph = facts.get("graph")
    return graph.get(_EDGES) if isinstance(graph, dict) else None


def _with_later_options(facts: Any) -> Any:
    """Add to the facts of a search the defaults of options that did not exist when they were written."""
    if not (isinstance(facts, dict) and isinstance(facts.get("config"), dict)):
        return facts
    # Features were used as they are before there was `prepare`.
    before = {} if in_catalogue(str(facts["config"].get("dataset"))) else {"prepare": "none"}
    return facts | {"config": plain(RunConfig().model_dump()) | before | facts["config"]}


def difference(there: Any, here: Any, *where: str) -> str | None:
    """Describe the first difference between the facts of two searches; None if there is none. `where` is the path of keys."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        return None if there == here else f"it has {' '.join(where)} {_text(there)}, not {_text(here)}"
    for name in dict.fromkeys([*there, *here]):
        if name not in _IGNORED:
            path = where if name in ("config", "graph") else (*where, name)
            found = difference(there.get(name), here.get(name), *path)
            if found is not None:
                return found
    return None


def _text(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _journal(path: Path) -> JournalStorage:
    """Open Optuna's journal. An unfinished line and Optuna's own lock, which a kill may leave behind, are removed first."""
    if path.exists():
        data = path.read_bytes()
        _check_journal(path, data)
        if not data.endswith(b"\n"):  # lines are appended, so only the last one can be unfinished
            with open(path, "r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)
    # The folder is locked, so no other process uses the journal. Optuna would wait half a minute for its old lock.
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, KeyError, TypeError) as error:
        raise FedquiltError(
            f"{path} cannot be read as a journal; it may be damaged: choose another folder with --into."
        ) from error
