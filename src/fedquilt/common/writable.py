"""Check that a folder or a file can be written, before the work is done whose result goes there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedquilt.errors import FedquiltError

ADVICE = "choose a place that this user may write to"


def check_folder_writable(folder: Path, advice: str = ADVICE, name: str = "") -> None:
    """Refuse a folder that cannot be written to, or that could not be made. Nothing is left behind.

    Args:
        folder: it need not exist.
        advice: the end of the sentence.
        name: what the sentence calls the folder, before its path.
    """
    with refused_where_unwritable(folder, advice, name):
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not existing.is_dir():
            raise FedquiltError(f"{_called(folder, name)} cannot be made: {existing} is a file; {advice}.")
        with tempfile.TemporaryFile(dir=existing):
            pass


@contextmanager
def refused_where_unwritable(path: Path, advice: str = ADVICE, name: str = "") -> Iterator[None]:
    """Turn an error of the operating system inside the block into a sentence about `path`."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # a loop of symbolic links is a RuntimeError
        why = getattr(error, "strerror", None) or error
        raise FedquiltError(f"{_called(path, name)} cannot be written to ({why}); {advice}.") from error


def _called(path: Path, name: str) -> str:
    return f"{name} {path}" if name else str(path)
