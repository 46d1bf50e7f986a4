"""Files that only their owner may read, at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedquilt.common.private_files import (
    append_private,
    make_private_folder,
    write_private_bytes,
    write_private_json,
)


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_written_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file"
    write_private_bytes(path, b"secret")
    assert (path.read_bytes(), mode(path)) == (b"secret", 0o600)
    path.chmod(0o644)  # as an earlier version wrote it
    write_private_json(path, {"x": [1, None]})
    assert (json.loads(path.read_bytes()), mode(path)) == ({"x": [1, None]}, 0o600)
    write_private_json(path, "later", sync=False)
    assert (json.loads(path.read_bytes()), mode(path)) == ("later", 0o600)
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private_json(tmp_path / "file", 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    for sync in (True, False):
        with pytest.raises(OSError, match="No space"):
            write_private_json(tmp_path / "file", 2, sync=sync)
    assert (tmp_path / "file").read_text() == "1\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_nobody_reads_it_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    write = Path.write_bytes

    def watched(path: Path, data: bytes) -> int:
        seen.append(mode(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", watched)
    write_private_bytes(tmp_path / "file", b"secret")
    assert seen == [0o600]


def test_folders_that_are_made_are_private_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    make_private_folder(tmp_path / "there" / "b" / "c")
    make_private_folder(tmp_path / "there" / "b" / "c")
    assert [mode(tmp_path / each) for each in ("there", "there/b", "there/b/c")] == [0o755, 0o700, 0o700]
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        make_private_folder(tmp_path / "file")


def test_lines_are_added(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_private(path, b"one\n")
    assert mode(path) == 0o600
    path.chmod(0o644)
    append_private(path, b"two\n", sync=False)
    assert (path.read_bytes(), mode(path)) == (b"one\ntwo\n", 0o600)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        append_private(tmp_path / "link", b"more")
    assert (tmp_path / "elsewhere").read_text() == "mine"
