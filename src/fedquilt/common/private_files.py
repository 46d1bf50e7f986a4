"""Files that hold someone's data, models or keys: only the user who writes them may read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedquilt.common.files import json_text, open_to_append, replacing, write_all

OWNER_FOLDER, OWNER_FILE = 0o700, 0o600  # permission bits


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for its owner only; folders that exist stay as they are."""
    folder = Path(folder)
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=OWNER_FOLDER, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))


def write_private_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically; only its owner may read it, at any moment."""
    with replacing(path, OWNER_FILE) as temporary:
        temporary.write_bytes(data)


def write_private_json(path: Path, value: Any, sync: bool = True) -> None:
    """Write `value` as `fedquilt.common.files.write_json` does, readable by its owner only.

    Without `sync` it reaches the disk a little later: faster, and after a power cut the file may be empty.
    """
    with replacing(path, OWNER_FILE, sync) as temporary:
        temporary.write_bytes(json_text(value).encode("utf-8"))


def append_private(path: Path, data: bytes, sync: bool = True) -> None:
    """Append to a file that only its owner may read, in one write; with `sync` it is on the disk on return.

    A symbolic link is not followed. A file that others may read, as earlier versions wrote them, is closed to them.
    """
    with open_to_append(path, OWNER_FILE) as file:
        handle = file.fileno()
        if os.name == "posix" and os.fstat(handle).st_mode & 0o077 and os.fstat(handle).st_uid == os.geteuid():
            os.fchmod(handle, OWNER_FILE)
        write_all(file, data)
        if sync:
            os.fsync(handle)
