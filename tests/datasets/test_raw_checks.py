"""Raw files that PyTorch Geometric would unpickle or unpack are checked first."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.datasets.raw_checks import check_raw_files
from fedquilt.errors import FedquiltError


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, ("made-by-a-pickle", 0o700)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_arrays_pass(tmp_path: Path, protocol: int) -> None:
    parts = {"x": sp.eye(3, format="csr"), "y": np.eye(3, dtype=np.int32), "graph": defaultdict(list, {0: [1, 2]})}
    for name, value in parts.items():
        (tmp_path / f"ind.cora.{name}").write_bytes(pickle.dumps(value, protocol))
    (tmp_path / "ind.cora.test.index").write_text("1\n")
    (tmp_path / "out1_graph_edges.txt").write_text("1 2\n")
    np.savez(tmp_path / "a.npz", x=np.eye(3), names=np.array(["a"], dtype=object))
    check_raw_files(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", [pickle.dumps([Hostile()]), b"cnumpy.testing\nrunstring\n(S'1'\n}tR.", b"", b"\x80\x09"]
)
def test_a_pickle_that_calls_something_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ind.cora.x").write_bytes(content)
    with pytest.raises(FedquiltError, match="could run code when read; delete it"):
        check_raw_files([tmp_path / "ind.cora.x"])
    assert not (tmp_path / "made-by-a-pickle").exists()


def test_an_archive_that_fills_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "photo.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(5_000_000))
    check_raw_files([tmp_path / "photo.npz"])
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", "1M")
    with pytest.raises(FedquiltError, match=r"photo\.npz is too large: its content would take 5\.0 MB"):
        check_raw_files([tmp_path / "photo.npz"])
    (tmp_path / "photo.npz").write_bytes(b"nothing")
    with pytest.raises(FedquiltError, match="is not an npz file"):
        check_raw_files([tmp_path / "photo.npz"])
