"""Folders that appear whole: after a kill at any moment there is either no folder or one with everything in it.

A new folder is filled under a temporary name beside its place and renamed. What a killed process left behind is swept by the
next one, but only where no process holds its lock.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from fedquilt.common.files import TEMPORARY, sync_folder
from fedquilt.common.lock import HeldError, locked
from fedquilt.errors import FedquiltError

LOCK = ".lock"
# As `fedquilt.common.files.replacing` and `temporary_folder` name them: a dot, the name, the process, a random part, which
# earlier versions left out of some.
_LEFTOVER = re.compile(r"\..+\.\d+(-[0-9a-f]+)?" + re.escape(TEMPORARY))
_FOLDER = re.compile(r"\..+\.\d+-[0-9a-f]{8}" + re.escape(TEMPORARY))
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def make_folder(place: Path, fill: Callable[[Path], None]) -> bool:
    """Make the folder `place` with what `fill` writes into the folder that it is called with.

    Returns False, and leaves nothing, where another process has made `place` meanwhile. Missing parents are made.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    sweep_folders(place.parent)
    with temporary_folder(place) as temporary:
        fill(temporary)
        # The files were synced when they were written. Their names are synced before the folder gets its own.
        sync_folder(temporary)
        try:
            os.rename(temporary, place)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
    sync_folder(place.parent)
    return True


def fill_folder(place: Path, fill: Callable[[Path], None], leftovers: Collection[str]) -> bool:
    """Fill the folder `place`, which exists and may be a mount or the only place that the user may write to.

    It has to be empty, or hold nothing but a lock and `leftovers` of a process that was killed while it filled the folder; else
    nothing is touched and the answer is False. So `fill` has to write last the file that makes the folder whole, which is no
    leftover.
    """
    if not _holds_only(place, leftovers):
        return False
    with locked(place / LOCK, place):
        if not _holds_only(place, leftovers):  # another process may have filled it meanwhile
            return False
        sweep_files(place)
        for name in leftovers:
            (place / name).unlink(missing_ok=True)
        fill(place)
    return True


def sweep_files(folder: Path) -> None:
    """Delete temporary files that a killed process left in a folder; its lock must be held."""
    for path in _leftovers(folder):
        with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
            path.unlink()


def sweep_files_of_the_dead(folder: Path) -> None:
    """Delete temporary files in a folder without a lock, where the process that made them is gone from this machine."""
    for path in _leftovers(folder) if folder.is_dir() else []:
        if not _is_running(int(path.name.removesuffix(TEMPORARY).rpartition(".")[2].partition("-")[0])):
            with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                path.unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def sweep_folders(parent: Path) -> None:
    """Delete this user's temporary folders in `parent` whose process is gone. Where that cannot be done, they stay."""
    found: list[Path] = []
    with suppress(OSError):  # a folder may be closed to reading, and open to writing
        found = _leftovers(parent)
    for path in found:
        if _FOLDER.fullmatch(path.name) is None or not _is_own_folder(path):
            continue
        with suppress(OSError):
            path.rmdir()  # a process that made it just now, and has not locked it yet, makes another one
            continue
        if not (path / LOCK).is_file() or not _locks_hold():
            continue
        with suppress(FedquiltError, OSError), locked(path / LOCK, path):
            shutil.rmtree(path, ignore_errors=True)


def is_leftover(name: str) -> bool:
    """Whether a file or folder has the name of a temporary one."""
    return _LEFTOVER.fullmatch(name) is not None


@contextmanager
def temporary_folder(place: Path) -> Iterator[Path]:
    """A new folder beside `place`, locked for the block so that nobody sweeps it; deleted afterwards unless it was renamed."""
    with ExitStack() as held:
        temporary = _locked_folder(place, held)
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _locked_folder(place: Path, held: ExitStack) -> Path:
    """Make a temporary folder beside `place` and lock it; again where another process swept it before it was locked."""
    while True:
        temporary = place.with_name(f".{place.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
        temporary.mkdir()
        with ExitStack() as lock:
            try:
                lock.enter_context(locked(temporary / LOCK, place))
            except HeldError:
                continue  # another process holds it to sweep it
            except (OSError, FedquiltError):
                if temporary.exists():
                    raise
                continue
            if (temporary / LOCK).is_file() or not _locks_hold():
                held.enter_context(lock.pop_all())
                return temporary


def _holds_only(folder: Path, leftovers: Collection[str]) -> bool:
    """Whether a folder is empty, or was being filled: then it has a lock, and nothing else but leftovers."""
    names = {path.name for path in folder.iterdir()}
    return not names or (
        LOCK in names and all(name == LOCK or name in leftovers or is_leftover(name) for name in names)
    )


def _leftovers(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if is_leftover(entry.name)]


def _is_own_folder(path: Path) -> bool:
    """Whether this user made a folder. Other programs name theirs as they like, in a folder that many share."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and (os.name != "posix" or found.st_uid == os.geteuid())


def _locks_hold() -> bool:
    """Whether this system has locks, so that one that can be had shows that its process is gone."""
    return find_spec("fcntl") is not None
