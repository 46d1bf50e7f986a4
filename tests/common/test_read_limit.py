"""The limit on what is read follows the machine or the environment, and is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedquilt.common import read_limit as module
from fedquilt.common.read_limit import check_size, in_words, read_bounded, read_limit, read_small
from fedquilt.errors import FedquiltError


@pytest.mark.parametrize(("text", "size"), [("20G", 20 * 2**30), ("500 M", 500 * 2**20), ("7", 7), ("1KiB", 1024)])
def test_the_environment_sets_it(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", text)
    assert read_limit() == size


@pytest.mark.parametrize("text", ["", "0", "much", "-1G", "9" * 400, "1.5G"])
def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", text)
    with pytest.raises(FedquiltError, match="FEDQUILT_READ_LIMIT has to be a size, such as 20G"):
        read_limit()


def test_by_default_it_is_half_of_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FEDQUILT_READ_LIMIT", raising=False)
    monkeypatch.setattr(module, "_CGROUP", tmp_path / "memory.max")
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert read_limit() == whole // 2
    (tmp_path / "memory.max").write_text("max\n")
    assert read_limit() == whole // 2
    (tmp_path / "memory.max").write_text("1000000\n")
    assert read_limit() == 500_000


def test_a_size_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", "1G")
    check_size(Path("a.npz"), 2**30)
    with pytest.raises(FedquiltError) as error:
        check_size(Path("a.npz"), 15_700_000_000, "its arrays")
    assert str(error.value) == (
        "a.npz is too large: its arrays would take 15.7 GB of memory, over the limit of 1.0 GB; "
        "if you trust the file, raise the limit with FEDQUILT_READ_LIMIT=15G."
    )


def test_no_more_is_read_than_may_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    assert read_bounded(tmp_path / "a", 10) == b"x" * 10
    with pytest.raises(ValueError, match="larger than 9 bytes"):
        read_bounded(tmp_path / "a", 9)
    with pytest.raises(ValueError, match=r"larger than 1\.0 kB"):
        read_bounded(Path("/dev/zero"), 1000)  # it has no end


def test_sizes_in_words() -> None:
    assert [in_words(size) for size in (999, 1500, 10**9, 10**400)] == [
        "999 bytes",
        "1.5 kB",
        "1.0 GB",
        "over a million TB",
    ]


def test_a_small_file_is_read_or_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(b"one\ntwo\n")
    assert read_small(path, 8) == b"one\ntwo\n"
    with pytest.raises(FedquiltError, match=r"classes\.txt cannot be read: it is larger than 7 bytes\.$"):
        read_small(path, 7)
    with pytest.raises(
        FedquiltError, match=r"could not be opened \(Is a directory\); it has to be a file that you may"
    ):
        read_small(tmp_path, 7)
    with pytest.raises(FedquiltError, match=r"gone could not be opened \(No such file or directory\)"):
        read_small(tmp_path / "gone", 7)
