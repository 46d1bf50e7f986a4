"""Finished cells as one file, to give to others: how it is written, and how it is read and checked.

The file is gzip-compressed JSON lines, a cell a line:

    {"fedquilt": "cells", "format": 2}                the first
    {"key": ..., "cell": {...}, "files": {...}}       cell.json, and of its run what reports read
    {"cells": N, "sha256": ...}                       the last, with a hash over all lines between

`files` has each file's path in the cell's folder with its text, or base64 where it holds arrays. The hash finds accidents: it
has no key, so that whoever makes up results can compute it as well. In format 1 each cell's line had a hash of its own too.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.common.files import plain, replacing
from fedquilt.common.json_text import MEMORY_PER_BYTE, parse_json, read_json
from fedquilt.common.printable import fault_of_name
from fedquilt.common.read_limit import in_words, read_limit
from fedquilt.errors import FedquiltError
from fedquilt.studies.store import StoredCell, is_whole

SUFFIX = ".jsonl.gz"
_HEAD = {"fedquilt": "cells", "format": 2}
_FORMATS = (1, 2)  # that can be read
_KEY = re.compile(r"[0-9a-f]{32}")
# Files of a cell's folder that reports read, and no others: no models, no nodes of clients.
_TEXTS = re.compile(r"(?:config|seal|seed-\d{1,10}/(?:summary|seal))\.json|seed-\d{1,10}/metrics\.jsonl")
_ARRAYS = re.compile(r"seed-\d{1,10}/(?:similarity|findings)\.npz")
_LONGEST = 2**26  # bytes of a line
_DEEPEST = 12  # levels of nesting; each indents cell.json further, so that a few bytes could become many


@dataclass(frozen=True)
class SharedCell:
    """One line of a file: a cell's key, the content of its cell.json, and files of its folder with their bytes."""

    key: str
    facts: dict[str, Any]
    files: dict[str, bytes]


def export_cells(cells: Iterable[StoredCell], path: Path, metrics: bool = True) -> tuple[int, list[str]]:
    """Write finished cells to one file; the same cells give the same bytes.

    Returns how many there are, and the keys of those whose metrics are too long for a line and were left out.
    """
    by_key = {cell.folder.name: cell for cell in cells}
    # Cells with almost the same options follow each other, so that they compress well.
    ordered = sorted(by_key.items(), key=lambda item: (json.dumps(item[1].facts.get("config")), item[0]))
    left_out, seal = [], hashlib.sha256()
    with (
        replacing(path) as temporary,
        open(temporary, "wb") as raw,
        # No name and no date: they would make each file another one.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file,
    ):
        file.write(_line(_HEAD))
        for key, cell in ordered:
            try:
                files = _files(cell.folder) if metrics else {}
            except ValueError as error:
                raise FedquiltError(
                    f"A file in {cell.folder} is damaged ({error}); delete that folder and run the study again, or export "
                    "without metrics."
                ) from error
            values = {"key": key, "cell": cell.facts, "files": files}
            line = _line(values)
            if len(line) > _longest():
                left_out.append(key)
                line = _line({**values, "files": {}})
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
                values = parse_json(line, _DEEPEST)
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
    except gzip.BadGzipFile as error:
        raise _damaged(path, "it is no gzip file, or damaged") from error
    except (EOFError, zlib.error, ValueError) as error:
        raise _damaged(path, "it cannot be read to its end") from error
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); it has to be a file that you may read."
        ) from error
    if not ended:
        raise _damaged(path, "its end is missing")


def _files(folder: Path) -> dict[str, str]:
    """The files of a cell that reports read, as lines have them; without the path of a folder on this machine."""
    found = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("seed-*/*")]):
        name = path.relative_to(folder).as_posix()
        if name == "config.json":
            found[name] = json.dumps(plain({**read_json(path), "data": None}), ensure_ascii=False)
        elif _TEXTS.fullmatch(name):
            found[name] = path.read_bytes().decode("utf-8")
        elif _ARRAYS.fullmatch(name):
            found[name] = base64.b64encode(path.read_bytes()).decode("ascii")
    return found


def _cell(path: Path, values: dict[str, Any]) -> SharedCell:
    """The cell in a line, once everything in it was checked."""
    key, facts, files = values.get("key"), values.get("cell"), values.get("files")
    if not isinstance(key, str) or not _KEY.fullmatch(key) or values.keys() - {"sha256"} != {"key", "cell", "files"}:
        raise _damaged(path, "a line holds no cell")
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
    """Whether what reports read has the types that they expect. The folder with graphs is each machine's own."""
    names = [facts["identity"], facts["code"], facts["device"], facts.get("named", "")]
    config, versions, measures = facts.get("config", {}), facts["versions"], facts["measures"]
    numbers = [facts["finished"], facts.get("seconds", 0.0)]
    if not all(isinstance(one, dict) for one in (config, versions, measures)) or "data" in config:
        return False
    lists = config.get("seeds", []), config.get("clients_from") or []
    if not all(isinstance(one, list) for one in lists):
        return False
    names += [versions.get("torch"), versions.get("fedquilt"), *lists[1]]
    names += [config.get(name, "") for name in ("method", "dataset", "partition")]
    numbers += [value for value in measures.values() if value is not None]
    return all(isinstance(one, str) and not fault_of_name(one) for one in names) and all(map(_is_number, numbers))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_head(path: Path, values: dict[str, Any]) -> None:
    if values.get("fedquilt") != _HEAD["fedquilt"]:
        raise _damaged(path, "it has another beginning")
    if values not in [{**_HEAD, "format": one} for one in _FORMATS]:
        raise FedquiltError(f"{path} was written by a newer fedquilt; update fedquilt to read it.")


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8") + b"\n"


def _longest() -> int:
    return min(_LONGEST, read_limit() // MEMORY_PER_BYTE)


def _damaged(path: Path, why: str) -> FedquiltError:
    return FedquiltError(
        f"{path} is no whole file of 'fedquilt study export': {why}; nothing was merged, ask for it again."
    )
