"""Take the cells of files that `exchange` wrote into a store.

All files are read to their ends, and their cells written to a temporary folder; then each cell is moved to its place under its
lock. So nothing comes from a file that is damaged, and a cell is there whole or not at all, whenever the process is killed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedquilt.common.files import json_text, sync_folder, sync_tree
from fedquilt.common.new_folder import sweep_folders, temporary_folder
from fedquilt.common.read_limit import in_words
from fedquilt.common.writable import check_folder_writable
from fedquilt.errors import FedquiltError
from fedquilt.studies.exchange import SharedCell, read_cells
from fedquilt.studies.store import CellStore, StoredCell, read_cell

_BLOCK = 2**12  # bytes of disk that a small file or a folder takes
_TIMES = ("seconds",)  # measures that differ whenever the same is computed again


@dataclass
class Merged:
    """What came of a merge.

    Attributes:
        new: cells that were not here. known: those that were, with the same result.
        stale: those among the new ones that another version of the computation than the installed one finished.
        completed: those among the known ones that had no metrics here and have them now.
        differing: a clause for each cell that has another result here, which was kept.
        running: the labels of cells that a process runs here just now, which were left alone.
    """

    new: int = 0
    known: int = 0
    stale: int = 0
    completed: int = 0
    differing: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)


def merge_cells(paths: Sequence[Path], store: CellStore) -> Merged:
    """Take the cells of files into a store; a cell that has another result here stays as it is."""
    check_folder_writable(store.into)
    is_new = not store.into.exists()
    store.into.mkdir(parents=True, exist_ok=True)
    try:
        return _merge(paths, store)
    except BaseException:
        if is_new:
            with suppress(OSError):
                store.into.rmdir()  # where nothing came of it
        raise


def _merge(paths: Sequence[Path], store: CellStore) -> Merged:
    merged = Merged()
    sweep_folders(store.into)
    with temporary_folder(store.into / "merge") as temporary:
        # A cell may be in several files; each file has a folder, so that the first one's is there when the second is taken.
        folders = [temporary / str(number) for number in range(len(paths))]
        _unpack(paths, folders, store, merged)
        sync_tree(temporary)
        for folder in folders:
            for unpacked in sorted(folder.iterdir()):
                _take(unpacked, store, merged)
        if merged.new:
            sync_folder(store.cells)
    return merged


def _unpack(paths: Sequence[Path], folders: Sequence[Path], store: CellStore, merged: Merged) -> None:
    """Write the cells of each file to its folder, but for those that the store has with all that the file has of them.

    FedquiltError where a file is damaged, or where the cells would fill the disk.
    """
    room, size = shutil.disk_usage(store.into).free // 2, 0
    for path, folder in zip(paths, folders, strict=True):
        folder.mkdir()
        for cell in read_cells(path):
            if _is_known(cell, store):
                merged.known += 1
                continue
            for name, data in {**cell.files, "cell.json": json_text(cell.facts).encode("utf-8")}.items():
                size += len(data) + 2 * _BLOCK
                if size > room:
                    raise FedquiltError(f"{path} would fill the disk: its cells take more than {in_words(room)}.")
                file = folder / cell.key / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)


def _is_known(cell: SharedCell, store: CellStore) -> bool:
    place = store.folder_of(cell.key)
    here = read_cell(place)
    return here is not None and here.facts == cell.facts and all((place / name).exists() for name in cell.files)


def _take(unpacked: Path, store: CellStore, merged: Merged) -> None:
    """Move an unpacked cell to its place, unless it is there or a process runs it."""
    place, there = store.folder_of(unpacked.name), read_cell(unpacked)
    assert there is not None
    with store.lock(unpacked.name) as acquired:
        if not acquired:
            merged.running.append(_label(there))
            return
        here = read_cell(place)
        if here is None:
            shutil.rmtree(place, ignore_errors=True)  # a run that was begun or failed here is not needed any more
            os.rename(unpacked, place)
            merged.new += 1
            merged.stale += there.stale
        elif not _same_result(here.facts, there.facts):
            ours, theirs = (cell.measures.get("test") for cell in (here, there))
            merged.differing.append(f"{_label(there)}: test is {_shown(ours)} here and {_shown(theirs)} there")
        else:
            merged.known += 1
            merged.completed += here.facts == there.facts and _complete(unpacked, place)


def _complete(unpacked: Path, place: Path) -> bool:
    """Move the files of a cell that its folder in the store lacks there; whether there were any."""
    lacking = [
        path for path in unpacked.rglob("*") if path.is_file() and not (place / path.relative_to(unpacked)).exists()
    ]
    for path in lacking:
        to = place / path.relative_to(unpacked)
        to.parent.mkdir(exist_ok=True)
        os.replace(path, to)
    return bool(lacking)


def _same_result(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two cells measured the same; a later version may measure more, and the time is never the same."""
    shared = (one["measures"].keys() & other["measures"].keys()) - set(_TIMES)
    return one["code"] == other["code"] and all(one["measures"][name] == other["measures"][name] for name in shared)


def _label(cell: StoredCell) -> str:
    """What a cell is of, for a line of text."""
    config = cell.facts.get("config", {})
    seeds = ", ".join(map(str, config.get("seeds") or ()))
    clients = config.get("clients")
    count = "" if clients is None else f", {clients} clients"
    return f"{config.get('method')} on {config.get('dataset')}{count}, seed {seeds} ({cell.folder.name[:8]})"


def _shown(value: float | None) -> str:
    return "missing" if value is None else f"{value:.2f}"
