"""Files that hold someone's data, models or keys: only the user who writes them may read them."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from fedquilt.common.files import TEMPORARY, plain, replacing

OWNER_FOLDER, OWNER_FILE = 0o700, 0o600  # permission bits
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


def create_private(path: Path) -> None:
    """Make a new, empty file that only its owner may read, before anything is written to it."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_FILE))


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
    with replacing(path) as temporary:
        create_private(temporary)
        temporary.write_bytes(data)


def write_private_json(path: Path, value: Any, sync: bool = True) -> None:
    """Write `value` as `fedquilt.common.files.write_json` does, readable by its owner only.

    Without `sync` it is written a little later: faster, and after a power cut the file may be empty.
    """
    data = (json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
    if sync:
        write_private_bytes(path, data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        create_private(temporary)
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def append_private(path: Path, data: bytes, sync: bool = True) -> None:
    """Append to a file that only its owner may read, in one write; with `sync` it is on the disk on return.

    A symbolic link is not followed. A file that others may read, as earlier versions wrote them, is closed to them.
    """
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOFOLLOW, OWNER_FILE)
    with open(handle, "ab") as file:
        if os.name == "posix" and os.fstat(handle).st_mode & 0o077 and os.fstat(handle).st_uid == os.geteuid():
            os.fchmod(handle, OWNER_FILE)
        file.write(data)
        file.flush()
        if sync:
            os.fsync(handle)
