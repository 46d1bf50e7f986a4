"""Check the files and folders that a command will write, before it starts its work."""

from __future__ import annotations

from pathlib import Path

from fedquilt.common.writable import check_folder_writable, refused_where_unwritable
from fedquilt.errors import FedquiltError

PICTURES = (".png", ".pdf", ".svg")


def check_target(path: Path | None, suffixes: tuple[str, ...], force: bool) -> None:
    """Refuse a path that cannot be written to, has another suffix, or exists already (unless `force`)."""
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
    """Refuse a folder that is not empty, is a file, or could not be created."""
    with refused_where_unwritable(path):
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            raise FedquiltError(f"{path} is already there; choose another name.")
    check_folder_writable(path)
