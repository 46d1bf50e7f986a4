"""Check the files and folders that a command is to write, before its work is done."""

from __future__ import annotations

from pathlib import Path

from fedquilt.common.writable import check_folder_writable, refused_where_unwritable
from fedquilt.errors import FedquiltError

PICTURES = (".png", ".pdf", ".svg")


def check_target(path: Path | None, suffixes: tuple[str, ...], force: bool) -> None:
    """Refuse a place that cannot be written to, has another ending, or holds something already."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise FedquiltError(f"'{path}' has to end in {' or '.join(suffixes)}; rename it.")
    with refused_where_unwritable(path):
        if path.is_dir():
            raise FedquiltError(f"{path} is a folder; name a file.")
        if path.exists() and not force:
            raise FedquiltError(f"{path} is already there; choose another name, or overwrite it with --force.")


def check_new_folder(path: Path) -> None:
    """Refuse a folder that holds something already, is a file, or could not be made."""
    with refused_where_unwritable(path):
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            raise FedquiltError(f"{path} is already there; choose another name.")
    check_folder_writable(path)
