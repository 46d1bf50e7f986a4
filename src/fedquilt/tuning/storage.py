"""The folder of a search: its configuration and Optuna's journal. A kill at any moment leaves it valid.

<folder>/tune.json       the configuration and the space; a search with others is refused in this folder
         journal.jsonl   a line for each step of each trial
         best.yaml       the best settings so far, as a config file
         history.png     validation metric by trial
         graph.npz       a graph that was given as an object
"""

from __future__ import annotations

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
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig

CONFIG, JOURNAL, BEST, HISTORY = "tune.json", "journal.jsonl", "best.yaml", "history.png"
# A search may be resumed with other values of these: the results are the same.
_IGNORED = ("versions", "data", "workers", "cohort_size", "checkpoint_seconds")


@contextmanager
def open_journal(folder: Path, facts: Mapping[str, Any]) -> Iterator[JournalStorage]:
    """Lock a search's folder for a block, create it if it does not exist, and open its journal.

    `facts` describe the search; a folder of another search is refused.
    """
    check_folder(folder, facts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedquiltError(f"Cannot make a folder at {folder}: {error.strerror}.") from error
    with locked(folder / ".lock", folder):
        check_folder(folder, facts)  # another process may have created it meanwhile
        if not (folder / CONFIG).exists():
            write_json(folder / CONFIG, facts)
        yield _journal(folder / JOURNAL)


def check_folder(folder: Path, facts: Mapping[str, Any]) -> None:
    """Refuse a folder that holds anything but the search that `facts` describe. Writes nothing."""
    if folder.exists() and not folder.is_dir():
        raise FedquiltError(f"{folder} is a file; choose another folder with --into.")
    if not (folder / CONFIG).exists():
        if folder.is_dir() and any(child.name != ".lock" for child in folder.iterdir()):
            raise FedquiltError(f"{folder} holds something that is no search; choose another folder with --into.")
        return
    try:
        there = read_json(folder / CONFIG)
    except ValueError:
        raise FedquiltError(f"{folder / CONFIG} is not valid JSON; choose another folder with --into.") from None
    found = difference(_with_later_options(there), plain(facts))
    if found is not None:
        raise FedquiltError(f"{folder} holds another search: {found}; choose another folder with --into.")


def _with_later_options(facts: Any) -> Any:
    """Add to the facts of a search the defaults of options that did not exist when they were written."""
    if not (isinstance(facts, dict) and isinstance(facts.get("config"), dict)):
        return facts
    return facts | {"config": plain(RunConfig().model_dump()) | facts["config"]}


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
