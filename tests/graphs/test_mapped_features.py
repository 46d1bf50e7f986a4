"""Features that stay on disk: the same run as with features in memory, and hostile files are refused."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fedquilt
from fedquilt.cohort.client import clients_of
from fedquilt.errors import FedquiltError
from fedquilt.graphs.fingerprint import fingerprints
from fedquilt.graphs.mapped_features import changed, features_file, is_mapped, map_features, some_rows, write_features
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.partition.make import make_partition
from support.federations import assert_same, without_seconds
from support.small_runs import SMALL, own_graph


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The same graph with its features in the file and beside it."""
    graph = own_graph()
    write_npz(graph, tmp_path / "inside.npz")
    write_npz(graph, tmp_path / "apart.npz", features_apart=True)
    return tmp_path / "inside.npz", tmp_path / "apart.npz"


def test_features_beside_a_file_are_mapped(files: tuple[Path, Path]) -> None:
    inside, apart = (read_npz(path, name="mine") for path in files)
    assert is_mapped(apart.x)
    assert not is_mapped(inside.x)
    assert not apart.x.flags.writeable
    assert np.array_equal(inside.x, apart.x)
    assert fingerprints(inside) == fingerprints(apart)
    assert features_file(files[1]).name == "apart.x.npy"
    assert "x" not in np.load(files[1])


@pytest.mark.parametrize("options", [{"partition": "random"}, {"prepare": "none"}, {"prepare": "rows"}], ids=str)
def test_a_run_is_the_same_from_memory_and_from_disk(files: tuple[Path, Path], options: dict[str, Any]) -> None:
    runs = [
        fedquilt.run("fedavg", path, **(SMALL | options | {"batch": "clusters", "batch_nodes": 10})) for path in files
    ]
    assert without_seconds(runs[0].records[0]) == without_seconds(runs[1].records[0])
    assert_same(runs[0].models[0], runs[1].models[0])


def test_clients_have_rows_on_disk(files: tuple[Path, Path]) -> None:
    graph = read_npz(files[1])
    split = np.zeros(graph.nodes, dtype=np.int8)
    ordered = make_partition(graph, "natural", labels=np.arange(graph.nodes) // 30)
    scattered = make_partition(graph, "random", clients=3)
    for partition in (ordered, scattered):
        for client, nodes in zip(clients_of(graph, partition, split), partition.nodes, strict=True):
            assert is_mapped(client.graph.x)
            assert np.array_equal(client.graph.x, graph.x[nodes])
            assert np.array_equal(some_rows(graph.x, nodes), graph.x[nodes])
    doubled = changed(graph.x, lambda x: 2 * x)
    assert is_mapped(doubled)
    assert np.array_equal(doubled, 2 * np.asarray(graph.x))
    assert not is_mapped(changed(np.asarray(own_graph().x), lambda x: 2 * x))


def saved(array: np.ndarray, **named: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **named)
    return file.getvalue()


GOOD = saved(np.ones((3, 2), dtype=np.float32))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "no npy file"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"x" * 100, "no npy file"),
        (b"\x93NUMPY\x09\x00" + GOOD[8:], "no npy file"),
        (GOOD[:-1], "no npy file"),
        (GOOD + b"more", "no npy file"),
        (GOOD.replace(b"(3, 2)", b"(9, 2)"), "no npy file"),
        (GOOD.replace(b"(3, 2)", b"(-3,2"), "no npy file"),
        (GOOD.replace(b"(3, 2), ", b"(3,-2),,"), "no npy file"),
        (saved(np.ones((3, 2))), "another type than float32"),
        (saved(np.ones((3, 2), dtype=">f4")), "another type than float32"),
        (saved(np.array([[{}]], dtype=object), allow_pickle=True), "another type than float32"),
        (saved(np.ones(3, dtype=np.float32)), "does not hold rows"),
        (saved(np.ones((0, 3), dtype=np.float32)), "does not hold rows"),
        (saved(np.asfortranarray(np.ones((3, 2), dtype=np.float32))), "does not hold rows"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "some.x.npy"
    path.write_bytes(content)
    with pytest.raises(FedquiltError, match=sentence):
        map_features(path)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="could not be opened"):
        map_features(tmp_path / "none.x.npy")
    np.savez(tmp_path / "mine.npz", edge_index=np.zeros((2, 0), dtype=np.int64), y=np.zeros(3, dtype=np.int64))
    with pytest.raises(FedquiltError, match=r"mine.x.npy beside it"):
        read_npz(tmp_path / "mine.npz")
    write_features(np.ones((4, 2), dtype=np.float32), tmp_path / "mine.x.npy")
    with pytest.raises(FedquiltError, match="4 rows of features but 3 labels"):
        read_npz(tmp_path / "mine.npz")
    write_features(np.array([[1.0], [np.nan], [2.0]], dtype=np.float32), tmp_path / "mine.x.npy")
    with pytest.raises(FedquiltError, match="a feature of node 1 that is NaN"):
        read_npz(tmp_path / "mine.npz")


def test_sparse_features_stay_inside(tmp_path: Path) -> None:
    graph = own_graph()
    with pytest.raises(FedquiltError, match="sparse features, which cannot be mapped"):
        write_npz(replace(graph, x=sp.csr_matrix(graph.x)), tmp_path / "mine.npz", features_apart=True)
