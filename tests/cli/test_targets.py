"""Files and folders that a command cannot write are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.cli.targets import check_new_folder, check_target
from fedquilt.errors import FedquiltError


def test_a_file_must_be_new_have_the_right_suffix_and_be_no_folder(tmp_path: Path) -> None:
    check_target(None, (".png",), force=False)
    check_target(tmp_path / "a.PNG", (".png", ".svg"), force=False)
    with pytest.raises(FedquiltError, match=r"has to end in \.png or \.svg"):
        check_target(tmp_path / "a.gif", (".png", ".svg"), force=False)
    (tmp_path / "a.png").touch()
    with pytest.raises(FedquiltError, match="is already there; choose another name, or overwrite it with --force"):
        check_target(tmp_path / "a.png", (".png",), force=False)
    check_target(tmp_path / "a.png", (".png",), force=True)
    (tmp_path / "b.png").mkdir()
    with pytest.raises(FedquiltError, match="is a folder; name a file"):
        check_target(tmp_path / "b.png", (".png",), force=True)


def test_a_folder_must_be_new_or_empty(tmp_path: Path) -> None:
    check_new_folder(tmp_path / "new" / "deeper")
    check_new_folder(tmp_path)
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(FedquiltError, match="is already there; choose another name"):
            check_new_folder(path)
    with pytest.raises(FedquiltError, match="file is a file"):
        check_new_folder(tmp_path / "file" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
