"""A lock file is held by one process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedquilt.common.lock import HeldError, locked


def test_the_holder_is_named_and_the_lock_is_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    for _ in range(2):
        with (
            locked(path, tmp_path),
            pytest.raises(HeldError, match=f"{tmp_path} is being written by process {os.getpid()}"),
            locked(path, tmp_path),
        ):
            pass
        assert path.exists()


def test_an_error_in_the_block_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / ".lock", tmp_path):
        _ = 1 / 0
    with locked(tmp_path / ".lock", tmp_path):
        pass
