"""Disturbances happen at the operation that was asked for, and do what they say."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuzz.hooks import Counter, disk_full_after, each_operation, killed_after, power_cut_after
from fuzz.processes import Ended, forked


def work(folder: Path, before: Callable[[], None]) -> Ended:
    """Four operations on files: open, fsync, rename, open."""

    def does() -> Any:
        before()
        with open("a", "w") as file:
            file.write("x" * 100)
            file.flush()
            os.fsync(file.fileno())
        os.rename("a", "b")
        with open("c.json", "w") as file:
            file.write("y" * 100)
            file.flush()
        os.mkdir("d")
        return {"done": True}

    return forked(does, folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_operations_are_counted(tmp_path: Path) -> None:
    def count() -> Any:
        seen = Counter()
        each_operation(tmp_path, seen)
        Path("a").write_text("x")
        Path("a").read_text()
        open("/dev/null", "w").close()
        return {"count": seen.count}

    assert forked(count, tmp_path).value == {"count": 1}


@pytest.mark.parametrize(("after", "left"), [(0, []), (1, ["a"]), (2, ["a"]), (3, ["b"]), (4, ["b", "c.json"])])
def test_a_kill_comes_before_the_next_operation(after: int, left: list[str], tmp_path: Path) -> None:
    assert work(tmp_path, killed_after(after, tmp_path)).status == -9
    assert names(tmp_path) == left


def test_a_process_that_ends_first_is_not_killed(tmp_path: Path) -> None:
    assert work(tmp_path, killed_after(5, tmp_path)).value == {"done": True}


def test_a_power_cut_loses_what_was_not_synced_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("z" * 50)
    assert work(tmp_path, power_cut_after(4, tmp_path, seed=1)).status == -9
    assert (tmp_path / "b").read_text() == "x" * 100
    assert (tmp_path / "old.json").read_text() == "z" * 50
    assert len((tmp_path / "c.json").read_text()) < 100


@pytest.mark.parametrize(("after", "left"), [(0, []), (1, ["a"]), (3, ["b"])])
def test_a_full_disk_is_an_error_of_the_operation(after: int, left: list[str], tmp_path: Path) -> None:
    ended = work(tmp_path, disk_full_after(after, tmp_path, lasting=True))
    assert os.strerror(errno.ENOSPC) in ended.err
    assert names(tmp_path) == left
