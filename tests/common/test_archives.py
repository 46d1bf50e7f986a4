"""An npz file is believed in nothing: what it declares is checked before anything is unpacked."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.common.archives import DamagedArchiveError, read_arrays
from fedquilt.errors import FedquiltError


def npy(shape: Any, descr: Any = "<f4", body: bytes = b"", header: str | None = None) -> bytes:
    """The bytes of an array that declares this shape, whatever its body."""
    text = header or repr({"descr": descr, "fortran_order": False, "shape": shape})
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1") + body


def zipped(path: Path, entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return path


def test_arrays_come_back(tmp_path: Path) -> None:
    arrays = {
        "x": np.eye(3, dtype=np.float32),
        "names": np.array(["a", "größe"]),
        "none": np.zeros((0, 4)),
        "n": np.array(7),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        read = read_arrays(tmp_path / "a.npz")
        assert list(read) == list(arrays)
        assert all(np.array_equal(read[key], array) and read[key].dtype == array.dtype for key, array in arrays.items())
        assert list(read_arrays(tmp_path / "a.npz", ["n", "absent"])) == ["n"]


def test_other_keys_are_not_even_looked_at(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", [("y.npy", npy((2,), "<i8", b"\0" * 16)), ("readme.txt", b"hello")])
    assert list(read_arrays(path, ["y"])) == ["y"]


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", "100M")
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w") as entry,
    ):
        entry.write(npy((50, 1_000_000), "|u1"))
        for _ in range(50):
            entry.write(bytes(1_000_000))
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    monkeypatch.setattr(np.lib.format, "read_array", None)  # unpacking would fail
    with pytest.raises(
        FedquiltError, match=r"too large: its arrays \(the largest is 'x', 50 x 1,000,000\) would take 500.0 MB"
    ):
        read_arrays(tmp_path / "bomb.npz")


@pytest.mark.parametrize(
    "data",
    [
        npy((10**12,), "<f4", bytes(16)),  # more than the entry has
        npy((10**400,), "<f4"),
        npy((-1, -4), "<f4", bytes(16)),
        npy((4,), "<f4", bytes(17)),
        npy((True, 4.0), "<f4", bytes(16)),
        npy(4, "<f4", bytes(16)),
        npy((4,), "<f4", bytes(16))[:-3],
        npy((), header="{'descr': " + "(" * 3000 + ")" * 3000 + "}"),
        npy((), header="__import__('os').getcwd()"),
        npy((), header="[" * 80),  # NumPy tokenizes what it cannot evaluate
        npy((), header="{}"),
        npy((2,), [("a", "<f4"), ("b", "O")], bytes(16))[:20],
        b"\x93NUMPY\x09\x00" + bytes(20),
        b"",
        b"text",
    ],
)
def test_a_header_that_does_not_fit_its_entry(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamagedArchiveError, match="is damaged: its array 'x' cannot be read"):
        read_arrays(zipped(tmp_path / "a.npz", [("x.npy", data)]))


def test_entries_of_no_size_are_counted(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", [("x.npy", npy((10**15,), "<U0"))])
    with pytest.raises(FedquiltError, match="is too large"):
        read_arrays(path)


@pytest.mark.parametrize("descr", [[("a", "<f4")], "<M8[s]", "|V8"])
def test_types_that_no_graph_has(tmp_path: Path, descr: Any) -> None:
    size = np.dtype(descr).itemsize
    with pytest.raises(FedquiltError, match=r"an array 'x' of type .*; save numbers or strings"):
        read_arrays(zipped(tmp_path / "a.npz", [("x.npy", npy((1,), descr, bytes(size)))]))


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    with pytest.raises(FedquiltError, match="holds pickled objects in 'x', which could run code"):
        read_arrays(tmp_path / "a.npz")


def _changed(path: Path, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def test_an_encrypted_archive_is_called_so(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", [("x.npy", npy((1,), "<f4", bytes(4)))])

    def mark(data: bytearray) -> None:
        data[data.find(b"PK\x03\x04") + 6] |= 1
        data[data.find(b"PK\x01\x02") + 8] |= 1

    _changed(path, mark)
    with pytest.raises(FedquiltError, match="is encrypted; decrypt it first"):
        read_arrays(path)


@pytest.mark.parametrize("field", [20, 24])  # the compressed and the whole size
def test_sizes_of_the_directory_that_cannot_be(tmp_path: Path, field: int) -> None:
    path = zipped(tmp_path / "a.npz", [("x.npy", npy((100,), "<f4", bytes(400)))])

    def enlarge(data: bytearray) -> None:
        at = data.find(b"PK\x01\x02") + field
        data[at : at + 4] = struct.pack("<I", 2**31)

    _changed(path, enlarge)
    with pytest.raises(FedquiltError, match="is damaged"):
        read_arrays(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice(tmp_path: Path) -> None:
    one = npy((1,), "<f4", bytes(4))
    for entries in ([("x.npy", one), ("x.npy", one)], [("x.npy", one), ("x", one)]):
        with pytest.raises(FedquiltError, match="has the array 'x' more than once"):
            read_arrays(zipped(tmp_path / "a.npz", entries))


def test_very_many_entries_and_other_compressions(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="more than 10,000 entries"):
        read_arrays(zipped(tmp_path / "a.npz", [(f"{i}", b"") for i in range(10_001)], zipfile.ZIP_STORED))
    with pytest.raises(FedquiltError, match="compressed in a way that NumPy does not write"):
        read_arrays(zipped(tmp_path / "b.npz", [("x.npy", npy((1,), "<f4", bytes(4)))], zipfile.ZIP_LZMA))


def test_a_directory_that_says_it_is_huge_is_not_read(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", [("x.npy", npy((1,), "<f4", bytes(4)))])
    _changed(path, lambda data: data.__setitem__(slice(-10, -6), struct.pack("<I", 2**31)))
    with pytest.raises(FedquiltError, match="is not an npz file, or is damaged"):
        read_arrays(path)


def test_names_of_entries_are_made_printable(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError) as error:
        read_arrays(zipped(tmp_path / "a.npz", [("\x1b[2J.npy", b"")]))
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("code", [0xD800, 0x110000, 0xFFFFFFFF])
def test_text_that_is_not_unicode(tmp_path: Path, code: int) -> None:
    path = zipped(tmp_path / "a.npz", [("name.npy", npy((), "<U2", struct.pack("<II", 65, code)))])
    with pytest.raises(FedquiltError, match="has text in 'name' that is not Unicode"):
        read_arrays(path)


def test_no_archive_at_all(tmp_path: Path) -> None:
    path, buffer = tmp_path / "a.npz", io.BytesIO()
    np.save(buffer, np.eye(2))
    for content, reason in (
        (b"", "is not an npz file"),
        (b"PK\x03\x04 broken", "is not an npz file"),
        (buffer.getvalue(), "a single array"),
    ):
        path.write_bytes(content)
        with pytest.raises(DamagedArchiveError, match=reason):
            read_arrays(path)
    with pytest.raises(FedquiltError, match="There is no file"):
        read_arrays(tmp_path / "absent.npz")
    with pytest.raises(FedquiltError, match="is a folder"):
        read_arrays(tmp_path)
