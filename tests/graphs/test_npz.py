"""The npz format: there and back, and every way a file can be bad."""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from fedquilt.errors import FedquiltError
from fedquilt.graphs.encoding import Column, Encoding
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, read_npz_clients, write_npz
from support.graphs import assert_same, graphs, tiny

GOOD = {"edge_index": np.array([[0, 1], [1, 2]]), "y": np.array([0, 1, 0]), "x": np.eye(3)}
SPARSE = {
    "x_indptr": np.array([0, 1, 2, 3]),
    "x_indices": np.array([0, 1, 2], dtype=np.uint16),
    "x_data": np.ones(3, dtype=np.uint8),
    "x_shape": np.array([3, 3]),
}


def without(*keys: str) -> dict[str, np.ndarray]:
    return {key: value for key, value in GOOD.items() if key not in keys}


@given(graphs())
def test_there_and_back(graph: Graph) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "graph.npz"
        write_npz(graph, path)
        assert_same(read_npz(path), graph)
        assert os.listdir(path.parent) == ["graph.npz"]


def test_a_private_graph_is_its_owners(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_npz(tiny(), tmp_path / "private.npz", private=True)
        write_npz(tiny(), tmp_path / "public.npz")
    finally:
        os.umask(before)
    assert [(tmp_path / f"{name}.npz").stat().st_mode & 0o777 for name in ("private", "public")] == [0o600, 0o644]


def test_class_names_survive(tmp_path: Path) -> None:
    write_npz(tiny(class_names=("no", "yes")), tmp_path / "g.npz")
    assert read_npz(tmp_path / "g.npz").class_names == ("no", "yes")


def test_feature_names_survive(tmp_path: Path) -> None:
    write_npz(tiny(feature_names=("age", "größe", "f 3")), tmp_path / "g.npz")
    assert read_npz(tmp_path / "g.npz").feature_names == ("age", "größe", "f 3")
    write_npz(tiny(), tmp_path / "g.npz")
    assert read_npz(tmp_path / "g.npz").feature_names is None


def test_copies_survive(tmp_path: Path) -> None:
    write_npz(tiny(copies=np.array([3, 1, 1, 0])), tmp_path / "g.npz")
    assert read_npz(tmp_path / "g.npz").copies.tolist() == [3, 1, 1, 0]
    write_npz(tiny(), tmp_path / "g.npz")
    assert read_npz(tmp_path / "g.npz").copies is None


def test_a_loose_file_is_cleaned(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **{**GOOD, "edge_index": np.array([[0, 1, 2, 1], [1, 0, 2, 2]])})
    graph = read_npz(tmp_path / "mine.npz")
    assert graph.name == "mine"
    assert graph.edges.tolist() == [[0, 1], [1, 2]]


def test_sparse_features_and_keys_we_do_not_know(tmp_path: Path) -> None:
    strange = np.array([{"any": "object"}], dtype=object)
    np.savez(
        tmp_path / "g.npz",
        **without("x"),
        **SPARSE,
        name="given",
        planetoid_train=np.arange(2),
        strange=strange,
    )
    graph = read_npz(tmp_path / "g.npz")
    assert graph.name == "given"
    assert graph.sparse
    assert np.array_equal(graph.x.toarray(), np.eye(3))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (without("y"), "has no array 'y'; a graph file needs edge_index, y and x"),
        (without("edge_index"), "has no array 'edge_index'"),
        (without("x"), "has no array 'x'"),
        ({**without("x"), "x_data": np.ones(3)}, "has no array 'x_indptr'; sparse features need all of"),
        (
            {**without("x"), **SPARSE, "x_indices": np.array([0, 1, 7])},
            "a sparse matrix whose parts do not fit together",
        ),
        (
            {**without("x"), **SPARSE, "x_indptr": np.array([0, 9, 2, 3])},
            "a sparse matrix whose parts do not fit together",
        ),
        ({**without("x"), **SPARSE, "x_data": np.array(["a", "b", "c"])}, "parts do not fit together"),
        (
            {**GOOD, "y": np.array([0, {}, 1], dtype=object)},
            "holds pickled objects in 'y', which could run code",
        ),
        ({**GOOD, "classes": np.array([2, 3])}, "a 'classes' that is not one whole number"),
        ({**GOOD, "train_mask": np.ones(3, dtype=bool)}, "has some masks only"),
        ({**GOOD, "y": np.array([0, 1, -5])}, "the label -5"),
        ({**GOOD, "feature_names": np.array(["a", "b"])}, "names 2 features but has 3"),
        ({**GOOD, "feature_names": np.array(["a", "b", "a"])}, "has the feature 'a' more than once"),
        (
            {**GOOD, "feature_names": np.array(["a", None, "b"], dtype=object)},
            "holds pickled objects in 'feature_names'",
        ),
    ],
)
def test_bad_contents(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FedquiltError, match=rf"bad\.npz .*{message}"):
        read_npz(tmp_path / "bad.npz")


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    with pytest.raises(FedquiltError, match="There is no file"):
        read_npz(path)
    with pytest.raises(FedquiltError, match="is a folder, not a file"):
        read_npz(tmp_path)
    for content in (b"", b"just some text", b"PK\x03\x04 broken"):
        path.write_bytes(content)
        with pytest.raises(FedquiltError, match="is not an npz file, or is damaged"):
            read_npz(path)
    with open(path, "wb") as file:
        np.save(file, np.eye(3))
    with pytest.raises(FedquiltError, match="holds a single array, not a graph"):
        read_npz(path)


def test_every_truncation_and_many_flipped_bytes_are_noticed(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    write_npz(tiny(), good)
    content = good.read_bytes()
    for length in range(0, len(content) - 1, 97):
        bad.write_bytes(content[:length])
        with pytest.raises(FedquiltError):
            read_npz(bad)
    for place in range(0, len(content), 31):
        bad.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        # Some bytes do not matter, such as a date; for all others there is our error and no other.
        with contextlib.suppress(FedquiltError):
            assert_same(read_npz(bad), tiny())


def test_writing_where_one_cannot(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedquiltError, match="could not be written"):
        write_npz(tiny(), tmp_path / "file" / "g.npz")
    with pytest.raises(FedquiltError, match="ids of mixed types"):
        write_npz(
            tiny(ids=np.array([1, "a", 2.5, None], dtype=object).astype(str).astype(object)),
            tmp_path / "g.npz",
        )


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g.npz"
    write_npz(tiny(), path)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(FedquiltError, match="No space left"):
        write_npz(tiny(y=np.zeros(4, int)), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["g.npz"]


def test_a_shape_alone_makes_no_nodes(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 0)}"
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        with archive.open("edge_index.npy", "w") as file:
            np.save(file, np.zeros((2, 0), dtype=np.int64))
    with pytest.raises(FedquiltError, match="features of shape 1000000000000 x 0"):
        read_npz(tmp_path / "g.npz", labelled=False)


def test_no_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("a thesis")
    (tmp_path / f".g.npz.{os.getpid()}.tmp").symlink_to("precious")
    write_npz(tiny(), tmp_path / "g.npz")
    assert (tmp_path / "precious").read_text() == "a thesis"
    assert_same(read_npz(tmp_path / "g.npz"), tiny())


@pytest.mark.parametrize("key", ["x_indptr", "x_indices", "x_data"])
def test_parts_of_a_sparse_matrix_of_other_types(tmp_path: Path, key: str) -> None:
    odd = np.full(4, 1 + 2j) if key == "x_data" else np.full(4, np.inf)
    np.savez(tmp_path / "g.npz", **{**without("x"), **SPARSE, key: odd})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FedquiltError, match="a sparse matrix whose parts do not fit together"):
            read_npz(tmp_path / "g.npz")


def test_clients_and_encoding_are_stored(tmp_path: Path) -> None:
    encoding = Encoding((Column("age", fill=3.5), Column("smoker", "boolean", 0.5)))
    graph = tiny(x=np.eye(4)[:, :2], feature_names=("age", "smoker"), encoding=encoding)
    write_npz(graph, tmp_path / "g.npz", clients=np.array(["north", "north", "south", "south"]))
    assert read_npz(tmp_path / "g.npz").encoding == encoding
    assert read_npz_clients(tmp_path / "g.npz").tolist() == ["north", "north", "south", "south"]
    write_npz(tiny(), tmp_path / "plain.npz")
    assert read_npz(tmp_path / "plain.npz").encoding is None
    assert read_npz_clients(tmp_path / "plain.npz") is None


def test_wrong_clients_and_encodings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    for clients, message in (
        (["a"] * 3, "'client' of shape 3"),
        ([0.5] * 4, "type float64"),
        (["a"] * 3 + [""], "without"),
    ):
        write_npz(tiny(), path, clients=np.array(clients))
        with pytest.raises(FedquiltError, match=message):
            read_npz_clients(path)
    arrays = {"edge_index": np.zeros((2, 0), int), "y": np.zeros(2, int), "x": np.ones((2, 1))}
    for text in ("{", "[]", '{"format": 1}', '{"format": 1, "columns": [{"name": 3}], "dropped": [], "missing": []}'):
        np.savez(path, **arrays, encoding=np.array(text))
        with pytest.raises(FedquiltError, match=r"damaged description of how its columns became features"):
            read_npz(path)
    np.savez(path, **arrays, encoding=np.array(Encoding((Column("a"), Column("b"))).to_json()))
    with pytest.raises(FedquiltError, match="features that are not those of its 'encoding'"):
        read_npz(path)
