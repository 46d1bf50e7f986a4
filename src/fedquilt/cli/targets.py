"""Files and folders that a command is to write: refused before the work is done, not after it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedquilt.errors import FedquiltError

PICTURES = (".png", ".pdf", ".svg")


def check_target(path: Path | None, suffixes: tuple[str, ...], force: bool) -> None:
    """Refuse a place that cannot be written to, has another ending, or holds something already."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise FedquiltError(f"'{path}' has to end in {' or '.join(suffixes)}; rename it.")
    with _within_reach(path):
        if path.is_dir():
            raise FedquiltError(f"{path} is a folder; name a file.")
        if path.exists() and not force:
            raise FedquiltError(f"{path} is already there; choose another name, or overwrite it with --force.")


def check_folder(path: Path) -> None:
    """Refuse a folder that holds something already, is a file, or could not be made."""
    with _within_reach(path):
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            raise FedquiltError(f"{path} is already there; choose another name.")
        there = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not there.is_dir():
            raise FedquiltError(f"{path} cannot be made: {there} is a file; choose another name.")
        with tempfile.TemporaryFile(dir=there):
            pass


@contextmanager
def _within_reach(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FedquiltError(
            f"{path} cannot be written to ({error.strerror}); choose a place that this user may write to."
        ) from error
