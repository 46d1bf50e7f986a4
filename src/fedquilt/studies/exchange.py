"""Give the finished cells of a store to others as one file, and take those of others in.

The file is gzip-compressed JSON lines, a cell a line:

    {"fedquilt": "cells", "format": 1}                              the first
    {"key": ..., "cell": {...}, "files": {...}, "sha256": ...}      cell.json, and of its run what reports read
    {"cells": N, "sha256": ...}                                     the last, with a hash over the others' hashes

`files` has each file's path in the cell's folder with its text, or base64 where it holds arrays. All of it is checked before
anything is written. The hashes find accidents: they have no key, so that whoever makes up results can seal them as well.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedquilt.common.files import plain, replacing, write_bytes, write_json
from fedquilt.common.json_text import MEMORY_PER_BYTE, parse_json, read_json
from fedquilt.common.new_folder import make_folder
from fedquilt.common.printable import fault_of_name
from fedquilt.common.read_limit import in_words, read_limit
from fedquilt.common.sealed import facts_sha256
from fedquilt.errors import FedquiltError
from fedquilt.studies.store import CellStore, StoredCell, is_whole, read_cell

SUFFIX = ".jsonl.gz"
_HEAD = {"fedquilt": "cells", "format": 1}
_KEY = re.compile(r"[0-9a-f]{32}")
# Files of a cell's folder that reports read, and no others: no models, no nodes of clients.
_TEXTS = re.compile(r"(?:config|seal|seed-\d{1,10}/(?:summary|seal))\.json|seed-\d{1,10}/metrics\.jsonl")
_ARRAYS = re.compile(r"seed-\d{1,10}/(?:similarity|findings)\.npz")
_LONGEST = 2**26  # bytes of a line
_TIMES = ("seconds",)  # measures that differ whenever the same is computed again


@dataclass(frozen=True)
class SharedCell:
    """One line of a file: a cell's key, the content of its cell.json, and files of its folder with their bytes."""

    key: str
    facts: dict[str, Any]
    files: dict[str, bytes]

    @property
    def label(self) -> str:
        """What it is of, for a line of text."""
        config = self.facts.get("config", {})
        seeds = ", ".join(map(str, config.get("seeds") or ()))
        clients = config.get("clients")
        count = "" if clients is None else f", {clients} clients"
        return f"{config.get('method')} on {config.get('dataset')}{count}, seed {seeds} ({self.key[:8]})"


@dataclass
class Merged:
    """What came of a merge.

    Attributes:
        new: cells that were not here. known: those that were, with the same result.
        completed: those among them that had no metrics here and have them now.
        differing: a clause for each cell that has another result here, which was kept.
        running: the labels of cells that a process runs here just now, which were left alone.
    """

    new: int = 0
    known: int = 0
    completed: int = 0
    differing: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)


def export_cells(cells: Iterable[StoredCell], path: Path, metrics: bool = True) -> tuple[int, list[str]]:
    """Write finished cells to one file, in the order of their keys; the same cells give the same bytes.

    Returns how many there are, and the keys of those whose metrics are too long for a line and were left out.
    """
    by_key = {cell.folder.name: cell for cell in cells}
    left_out, seal = [], hashlib.sha256()
    with (
        replacing(path) as temporary,
        open(temporary, "wb") as raw,
        # No name and no date: they would make each file another one.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file,
    ):
        file.write(_line(_HEAD))
        for key, cell in sorted(by_key.items()):
            values: dict[str, Any] = {
                "key": key,
                "cell": cell.facts,
                "files": _files(cell.folder) if metrics else {},
            }
            line = _sealed_line(values)
            if len(line) > _longest():
                left_out.append(key)
                line = _sealed_line({**values, "files": {}})
            seal.update(line)
            file.write(line)
        file.write(_line({"cells": len(by_key), "sha256": seal.hexdigest()}))
    return len(by_key), left_out


def read_cells(path: Path) -> Iterator[SharedCell]:
    """The cells in a file, one at a time; `FedquiltError` at the first thing that is wrong, the last line included."""
    keys: set[str] = set()
    seal, head, ended = hashlib.sha256(), False, False
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline(_longest() + 1):
                if len(line) > _longest():
                    raise _damaged(path, f"a line is longer than {in_words(_longest())}")
                values = parse_json(line)
                if ended or not isinstance(values, dict):
                    raise _damaged(path, "it goes on after its end" if ended else "a line holds no cell")
                if not head:
                    _check_head(path, values)
                    head = True
                elif "cells" in values:
                    ended = True
                    if values != {"cells": len(keys), "sha256": seal.hexdigest()}:
                        raise _damaged(path, "its seal is of other cells")
                else:
                    seal.update(line)
                    cell = _cell(path, values)
                    if cell.key in keys:
                        raise _damaged(path, f"it has the cell {cell.key} twice")
                    keys.add(cell.key)
                    yield cell
    except FileNotFoundError:
        raise FedquiltError(f"There is no file '{path}'; check the path.") from None
    except (EOFError, zlib.error, ValueError, gzip.BadGzipFile) as error:
        raise _damaged(path, "it cannot be read to its end") from error
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); it has to be a file that you may read."
        ) from error
    if not ended:
        raise _damaged(path, "its end is missing")


def merge_cells(paths: Sequence[Path], store: CellStore) -> Merged:
    """Take the cells of files into a store. All files are read to their ends before anything is written.

    A cell whose result here is another one stays as it is here.
    """
    store.into.mkdir(parents=True, exist_ok=True)
    room, size = shutil.disk_usage(store.into).free // 2, 0
    for path in paths:
        for cell in read_cells(path):
            size += sum(map(len, cell.files.values())) + 2**13
            if size > room:
                raise FedquiltError(f"{path} would fill the disk: its cells take more than {in_words(room)}.")
    merged = Merged()
    for path in paths:
        for cell in read_cells(path):
            with store.lock(cell.key) as acquired:
                if acquired:
                    _take(cell, store, merged)
                else:
                    merged.running.append(cell.label)
    return merged


def _take(cell: SharedCell, store: CellStore, merged: Merged) -> None:
    """Take one cell into the store; its lock is held."""
    place = store.folder_of(cell.key)
    here = read_cell(place)
    if here is None:
        shutil.rmtree(place, ignore_errors=True)  # a run that was begun or failed here is not needed any more
        make_folder(place, lambda folder: _write(cell, folder))
        merged.new += 1
    elif not _same_result(here.facts, cell.facts):
        ours, theirs = (facts["measures"].get("test") for facts in (here.facts, cell.facts))
        merged.differing.append(f"{cell.label}: test is {_shown(ours)} here and {_shown(theirs)} there")
    else:
        merged.known += 1
        if here.facts == cell.facts and cell.files and not (place / "config.json").exists():
            _write(cell, place)
            merged.completed += 1


def _write(cell: SharedCell, folder: Path) -> None:
    for name, data in cell.files.items():
        write_bytes(folder / name, data)
    write_json(folder / "cell.json", cell.facts)  # last: it says that the cell is done


def _same_result(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two cells measured the same; a later version may measure more, and the time is never the same."""
    shared = (one["measures"].keys() & other["measures"].keys()) - set(_TIMES)
    return one["code"] == other["code"] and all(one["measures"][name] == other["measures"][name] for name in shared)


def _shown(value: float | None) -> str:
    return "missing" if value is None else f"{value:.2f}"


def _files(folder: Path) -> dict[str, str]:
    """The files of a cell that reports read, as lines have them; without the path of a folder on this machine."""
    found = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("seed-*/*")]):
        name = path.relative_to(folder).as_posix()
        if name == "config.json":
            found[name] = json.dumps(plain({**read_json(path), "data": None}), ensure_ascii=False)
        elif _TEXTS.fullmatch(name):
            found[name] = path.read_text(encoding="utf-8")
        elif _ARRAYS.fullmatch(name):
            found[name] = base64.b64encode(path.read_bytes()).decode("ascii")
    return found


def _cell(path: Path, values: dict[str, Any]) -> SharedCell:
    """The cell in a line, once everything in it was checked."""
    key, facts, files = values.get("key"), values.get("cell"), values.get("files")
    rest = {name: value for name, value in values.items() if name != "sha256"}
    if not isinstance(key, str) or not _KEY.fullmatch(key) or rest.keys() != {"key", "cell", "files"}:
        raise _damaged(path, "a line holds no cell")
    if values.get("sha256") != facts_sha256(rest):
        raise _damaged(path, f"the cell {key} is not what was sealed")
    if not isinstance(facts, dict) or not is_whole(facts) or not _is_sound(facts) or not isinstance(files, dict):
        raise _damaged(path, f"the cell {key} holds no result")
    return SharedCell(key, facts, {name: _bytes(path, key, name, text) for name, text in files.items()})


def _bytes(path: Path, key: str, name: str, text: Any) -> bytes:
    if isinstance(text, str) and _TEXTS.fullmatch(name):
        return text.encode("utf-8")
    if isinstance(text, str) and _ARRAYS.fullmatch(name):
        return base64.b64decode(text, validate=True)
    raise _damaged(path, f"the cell {key} has a file that is none of a report's")


def _is_sound(facts: dict[str, Any]) -> bool:
    """Whether what reports read has the types that they expect."""
    names = [facts["identity"], facts["code"], facts["device"], facts.get("named", "")]
    config, versions, measures = facts.get("config", {}), facts["versions"], facts["measures"]
    numbers = [facts["finished"], facts.get("seconds", 0.0)]
    if not all(isinstance(one, dict) for one in (config, versions, measures)):
        return False
    if not isinstance(config.get("seeds", []), list):
        return False
    names += [versions.get("torch"), versions.get("fedquilt"), config.get("method", "")]
    numbers += [value for value in measures.values() if value is not None]
    return all(isinstance(one, str) and not fault_of_name(one) for one in names) and all(map(_is_number, numbers))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_head(path: Path, values: dict[str, Any]) -> None:
    if values.get("fedquilt") != _HEAD["fedquilt"]:
        raise _damaged(path, "it has another beginning")
    if values != _HEAD:
        raise FedquiltError(f"{path} was written by a newer fedquilt; update fedquilt to read it.")


def _sealed_line(values: dict[str, Any]) -> bytes:
    return _line({**values, "sha256": facts_sha256(values)})


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8") + b"\n"


def _longest() -> int:
    return min(_LONGEST, read_limit() // MEMORY_PER_BYTE)


def _damaged(path: Path, why: str) -> FedquiltError:
    return FedquiltError(
        f"{path} is no whole file of 'fedquilt study export': {why}; nothing was merged, ask for it again."
    )
