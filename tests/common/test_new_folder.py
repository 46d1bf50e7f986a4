from __future__ import annotations

import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedquilt.common.files import write_text
from fedquilt.common.lock import HeldError, locked
from fedquilt.common.new_folder import (
    fill_folder,
    is_leftover,
    make_folder,
    sweep_files,
    sweep_files_of_the_dead,
    sweep_folders,
)
from support.kills import killed_at

LEFT = ".place.123-0a1b2c3d.tmp"


def fill(folder: Path) -> None:
    write_text(folder / "first", "1")
    write_text(folder / "last", "2")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "place"
    assert make_folder(place, fill)
    assert names(place) == [".lock", "first", "last"]
    assert names(place.parent) == ["place"]
    assert not make_folder(place, fill)
    assert names(place.parent) == ["place"]


def test_an_error_while_filling_leaves_nothing(tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        fill(folder)
        raise FileNotFoundError("mine")

    with pytest.raises(FileNotFoundError, match="mine"):
        make_folder(tmp_path / "place", broken)
    assert names(tmp_path) == []


def test_one_of_many_makes_it(tmp_path: Path) -> None:
    start = threading.Barrier(6)

    def make(_: int) -> bool:
        start.wait()
        return make_folder(tmp_path / "place", fill)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(make, range(6))) == 1
    assert names(tmp_path) == ["place"]
    assert names(tmp_path / "place") == [".lock", "first", "last"]


def test_a_kill_at_any_write_leaves_all_or_nothing(tmp_path: Path) -> None:
    kills = 0
    while killed_at(kills + 1, tmp_path, lambda: make_folder(tmp_path / "place", fill)):
        kills += 1
        whole = (tmp_path / "place").exists()
        assert not whole or names(tmp_path / "place") == [".lock", "first", "last"]
        assert make_folder(tmp_path / "place", fill) != whole
        assert names(tmp_path) == ["place"]  # the other's leftovers are gone
        for name in names(tmp_path / "place"):
            (tmp_path / "place" / name).unlink()
        (tmp_path / "place").rmdir()
    assert kills > 10


def test_a_folder_that_exists_is_filled_where_it_is_empty(tmp_path: Path) -> None:
    assert fill_folder(tmp_path, fill, ["first"])
    assert names(tmp_path) == [".lock", "first", "last"]
    assert not fill_folder(tmp_path, fill, ["first"])


def test_a_kill_while_a_folder_is_filled_leaves_one_that_is_filled_again(tmp_path: Path) -> None:
    kills = 0
    while killed_at(kills + 1, tmp_path, lambda: fill_folder(tmp_path, fill, ["first"])):
        kills += 1
        whole = (tmp_path / "last").exists()
        assert fill_folder(tmp_path, fill, ["first"]) != whole
        assert names(tmp_path) == [".lock", "first", "last"]
        for name in names(tmp_path):
            (tmp_path / name).unlink()
    assert kills > 6


def test_another_persons_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("mine")  # without a lock, it is no leftover
    assert not fill_folder(tmp_path, fill, ["first"])
    assert names(tmp_path) == ["first"]
    (tmp_path / ".lock").touch()
    (tmp_path / "mine").write_text("mine")
    assert not fill_folder(tmp_path, fill, ["first"])
    assert (tmp_path / "first").read_text() == "mine"


def test_a_folder_that_someone_fills_is_not_filled(tmp_path: Path) -> None:
    with locked(tmp_path / ".lock", tmp_path), pytest.raises(HeldError):
        fill_folder(tmp_path, fill, [])


def test_only_what_no_process_holds_is_swept(tmp_path: Path) -> None:
    (tmp_path / LEFT).mkdir()
    (tmp_path / LEFT / "first").touch()
    (tmp_path / LEFT / ".lock").touch()
    with locked(tmp_path / LEFT / ".lock", tmp_path):
        sweep_folders(tmp_path)
        assert names(tmp_path / LEFT) == [".lock", "first"]
    sweep_folders(tmp_path)
    assert names(tmp_path) == []
    (tmp_path / LEFT).mkdir()  # killed before it had a lock
    for other in ("place", ".place.tmp", ".place.123-0a1b2c3d", ".place.123.tmp", ".place.123-0a1b.tmp"):
        (tmp_path / other).mkdir()
    os.symlink(tmp_path / "place", tmp_path / ".link.123-0a1b2c3d.tmp")
    sweep_folders(tmp_path)
    kept = [
        ".link.123-0a1b2c3d.tmp",
        ".place.123-0a1b.tmp",
        ".place.123-0a1b2c3d",
        ".place.123.tmp",
        ".place.tmp",
        "place",
    ]
    assert names(tmp_path) == kept


def test_folders_of_other_users_are_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LEFT).mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 12345)
        sweep_folders(tmp_path)
        assert names(tmp_path) == [LEFT]
    sweep_folders(tmp_path)
    assert names(tmp_path) == []


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path.mkdir
    swept: list[str] = []

    def mkdir(self: Path, *args: object, **options: object) -> None:
        made(self, *args, **options)
        if is_leftover(self.name) and len(swept) < 2:
            swept.append(self.name)
            sweep_folders(self.parent)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert make_folder(tmp_path / "place", fill)
    assert len(swept) == 2
    assert names(tmp_path) == ["place"]


def test_temporary_files_of_a_running_process_are_not_swept(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for process in (gone.pid, os.getpid(), 10**30):
        (tmp_path / f".report.md.{process}-0123abcd.tmp").touch()
    sweep_files_of_the_dead(tmp_path)
    assert len(names(tmp_path)) == 2
    assert not any(str(gone.pid) in name for name in names(tmp_path))
    sweep_files_of_the_dead(tmp_path / "nowhere")


def test_temporary_files_are_swept(tmp_path: Path) -> None:
    for name in (".config.json.77-0123abcd.tmp", "config.json", ".config.json.tmp", "x.77-0123abcd.tmp"):
        (tmp_path / name).touch()
    sweep_files(tmp_path)
    assert names(tmp_path) == [".config.json.tmp", "config.json", "x.77-0123abcd.tmp"]
