from __future__ import annotations

import enum
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.common import files
from fedquilt.common.archives import read_arrays


class Colour(enum.StrEnum):
    RED = "red"


def test_write_and_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    files.write_text(path, "één\n")
    files.write_text(path, "two\r\n")
    assert path.read_bytes() == b"two\r\n"
    assert os.listdir(path.parent) == ["a.txt"]


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x")
    files.write_bytes(tmp_path / "atomic", b"x")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "a.bin"
    files.write_bytes(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="No space"):
        files.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_many_files_reach_the_disk_in_one_step_or_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a", "deep/b"):
        (tmp_path / name).write_bytes(b"x")
    synced: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append("all"), raising=False)
    monkeypatch.setattr(files, "sync_file", lambda path: synced.append(path.name))
    files.sync_tree(tmp_path)
    assert synced == ["all"]
    monkeypatch.delattr(os, "sync")
    files.sync_tree(tmp_path)
    assert sorted(synced[1:]) == ["a", "b"]


def test_an_interrupt_in_the_middle_of_writing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with files.replacing(tmp_path / "a.bin") as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_a_value_that_json_cannot_hold_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        files.write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_json_keeps_order_and_turns_nan_into_null(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {
        "z": math.nan,
        "a": (1, np.int64(2), np.float32(0.5), torch.tensor([1.0, math.inf])),
        3: Path("x/y"),
        "colour": Colour.RED,
        "set": {2, 1},
        "flag": np.bool_(True),
    }
    files.write_json(path, value)
    text = path.read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    read = json.loads(text)
    assert list(read) == ["z", "a", "3", "colour", "set", "flag"]
    assert read == {
        "z": None,
        "a": [1, 2, 0.5, [1.0, None]],
        "3": "x/y",
        "colour": "red",
        "set": [1, 2],
        "flag": True,
    }


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text('aé\n\\"\0☃'))
def test_json_values_come_back_exactly(value: float | int | str) -> None:
    assert json.loads(json.dumps(files.plain([value]), allow_nan=False)) == [value]


def test_npz_round_trip_and_no_pickle(tmp_path: Path) -> None:
    arrays = {"a": np.arange(3), "empty": np.zeros((0, 2), np.float32), "names": np.array(["x", "yy"])}
    files.write_npz(tmp_path / "a.npz", arrays)
    assert (tmp_path / "a.npz").stat().st_mode & 0o777 == 0o600
    read = read_arrays(tmp_path / "a.npz")
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype
    with pytest.raises(TypeError, match="pickle"):
        files.write_npz(tmp_path / "b.npz", {"a": np.array([{}], dtype=object)})
    assert not (tmp_path / "b.npz").exists()


def test_nobody_can_put_a_link_in_place_of_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precious").write_text("a thesis")
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "guessed")
    (tmp_path / f".a.json.{os.getpid()}-guessed.tmp").symlink_to("precious")
    with pytest.raises(FileExistsError):
        files.write_text(tmp_path / "a.json", "{}")
    assert (tmp_path / "precious").read_text() == "a thesis"


def test_appending_follows_no_link(tmp_path: Path) -> None:
    with files.open_to_append(tmp_path / "log", 0o600) as file:
        file.write(b"one")
    with files.open_to_append(tmp_path / "log") as file:
        file.write(b" two")
    assert (tmp_path / "log").read_bytes() == b"one two"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to("log")
    with pytest.raises(OSError, match="link"):
        files.open_to_append(tmp_path / "link")


def test_importing_runs_and_reports_imports_no_matplotlib() -> None:
    code = "import sys, fedquilt.runs, fedquilt.reports; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
