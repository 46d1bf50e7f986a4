"""Folders that cannot be written are refused before anything is computed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedquilt.common.writable import check_folder_writable, refused_where_unwritable
from fedquilt.errors import FedquiltError


def test_a_folder_that_can_be_made_is_not_made(tmp_path: Path) -> None:
    check_folder_writable(tmp_path / "a" / "b")
    check_folder_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FedquiltError) as caught:
        check_folder_writable(tmp_path / "file" / "x", "choose another --out", "The state folder")
    path = tmp_path / "file"
    assert str(caught.value) == f"The state folder {path / 'x'} cannot be made: {path} is a file; choose another --out."


@pytest.mark.skipif(os.name != "posix", reason="there is no /proc")
def test_a_folder_of_the_system_is_refused() -> None:
    with pytest.raises(FedquiltError, match=r"^/proc/x cannot be written to \(.*\); choose a place that this user may"):
        check_folder_writable(Path("/proc/x"))


def test_an_error_of_the_operating_system_becomes_a_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(FedquiltError, match=r"out cannot be written to \(No space left on device\); choose another"),
        refused_where_unwritable(Path("out"), "choose another --out"),
    ):
        raise OSError(28, "No space left on device")
