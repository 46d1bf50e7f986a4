"""The public routes, on tiny raw files laid out as the real ones are, and what is said without internet."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import socket
import time
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.datasets import download
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.npz import read_npz
from support.graphs import assert_same, dense

N = 8
X = np.eye(N, 5, dtype=np.float32)
Y = np.arange(N) % 2
# A ring, each edge in one direction.
RING = np.stack([np.arange(N), (np.arange(N) + 1) % N])
EDGES = sorted((min(u, v), max(u, v)) for u, v in RING.T)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever tries the network fails as it does offline, and at once."""

    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def check(name: str, folder: Path, x: np.ndarray = X, file: str | None = None) -> None:
    """The graph is the ring, and now lies in the data folder as npz."""
    graph, _ = load_graph(name, folder)
    assert [tuple(edge) for edge in graph.edges.T] == EDGES
    assert np.array_equal(dense(graph), x)
    assert graph.y.tolist() == Y.tolist()
    cached = read_npz(folder / f"{file or name}.npz")
    assert_same(cached, graph)
    assert cached.name == graph.name == (file or name)
    assert_same(load_graph(name, folder)[0], graph)
    assert not list(folder.rglob("processed"))


def test_planetoid(tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "planetoid" / "Cora" / "raw"
    raw.mkdir(parents=True)
    one_hot = np.eye(2, dtype=np.int32)[Y]
    graph = {node: [(node + 1) % N, (node - 1) % N] for node in range(N)}
    # PyG marks 500 validation nodes after the training ones, so a tiny graph cannot have fewer than that.
    many = 600
    x, y = np.zeros((many, 5), dtype=np.float32), np.zeros((many, 2), dtype=np.int32)
    x[:N], y[:N], y[N:, 0] = X, one_hot, 1
    parts = {
        "x": sp.csr_matrix(x[:2]),
        "tx": sp.csr_matrix(x[-2:]),
        "allx": sp.csr_matrix(x[:-2]),
        "y": y[:2],
        "ty": y[-2:],
        "ally": y[:-2],
        "graph": graph,
    }
    for part, value in parts.items():
        (raw / f"ind.cora.{part}").write_bytes(pickle.dumps(value))
    (raw / "ind.cora.test.index").write_text(f"{many - 2}\n{many - 1}\n")
    found, protocol = load_graph("cora", tmp_path)
    assert [tuple(edge) for edge in found.edges.T] == EDGES
    assert found.sparse
    assert np.array_equal(found.x.toarray(), x)
    assert found.y[:N].tolist() == Y.tolist()
    assert {part: int(mask.sum()) for part, mask in found.masks.items()} == {
        "train": 2,
        "val": 500,
        "test": 2,
    }
    assert protocol.largest_component
    assert_same(read_npz(tmp_path / "cora.npz"), found)


def test_amazon(tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "amazon" / "Photo" / "raw"
    raw.mkdir(parents=True)
    adjacency = sp.csr_matrix((np.ones(N), RING), shape=(N, N))
    x = sp.csr_matrix(X)
    np.savez(
        raw / "amazon_electronics_photo.npz",
        **{f"adj_{key}": getattr(adjacency, key) for key in ("data", "indices", "indptr", "shape")},
        **{f"attr_{key}": getattr(x, key) for key in ("data", "indices", "indptr", "shape")},
        labels=Y,
    )
    check("amazon-photo", tmp_path)


@pytest.mark.parametrize("name", ["roman-empire", "amazon-ratings", "questions", "minesweeper"])
def test_heterophilous(name: str, tmp_path: Path) -> None:
    file = name.replace("-", "_")
    raw = tmp_path / "raw" / "heterophilous" / file / "raw"
    raw.mkdir(parents=True)
    masks = {f"{part}_masks": np.zeros((10, N), dtype=bool) for part in ("train", "val", "test")}
    np.savez(raw / f"{file}.npz", node_features=X, node_labels=Y, edges=RING.T, **masks)
    check(name, tmp_path)


def geom_gcn(raw: Path, features: list[str], splits: str) -> None:
    raw.mkdir(parents=True)
    rows = [f"{node}\t{text}\t{label}" for node, (text, label) in enumerate(zip(features, Y, strict=True))]
    (raw / "out1_node_feature_label.txt").write_text("\n".join(["node_id\tfeature\tlabel", *rows, ""]))
    (raw / "out1_graph_edges.txt").write_text("\n".join(["a\tb", *(f"{u}\t{v}" for u, v in RING.T), ""]))
    for number in range(10):
        masks = {f"{part}_mask": np.zeros(N, dtype=np.uint8) for part in ("train", "val", "test")}
        np.savez(raw / f"{splits}_split_0.6_0.2_{number}.npz", **masks)


def test_wikipedia(tmp_path: Path) -> None:
    features = [",".join(str(int(value)) for value in row) for row in X]
    geom_gcn(tmp_path / "raw" / "wikipedia" / "squirrel" / "geom_gcn" / "raw", features, "squirrel")
    check("squirrel", tmp_path)


def test_actor(tmp_path: Path) -> None:
    geom_gcn(tmp_path / "raw" / "actor" / "raw", [f"{node % 4},4" for node in range(N)], "film")
    x = np.zeros((N, 5), dtype=np.float32)
    x[np.arange(N), np.arange(N) % 4] = x[:, 4] = 1
    check("actor", tmp_path, x)


def test_flickr(tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "flickr" / "raw"
    raw.mkdir(parents=True)
    adjacency = sp.csr_matrix((np.ones(N), RING), shape=(N, N))
    sp.save_npz(raw / "adj_full.npz", adjacency)
    np.save(raw / "feats.npy", X.astype(np.float64))
    (raw / "class_map.json").write_text(json.dumps({str(node): int(label) for node, label in enumerate(Y)}))
    (raw / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [2], "te": [3, 4]}))
    check("flickr", tmp_path)
    assert read_npz(tmp_path / "flickr.npz").masks["train"].sum() == 2


def write_ogb(folder: Path) -> None:
    tables = {
        "raw/edge": RING.T,
        "raw/node-feat": X,
        "raw/node-label": Y,
        "split/time/train": [0, 1],
        "split/time/valid": [2],
        "split/time/test": [3],
    }
    for name, table in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            np.savetxt(file, np.asarray(table), delimiter=",", fmt="%g")


def test_ogb(tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "ogb" / "ogbn_arxiv"
    write_ogb(folder)
    check("ogbn-arxiv", tmp_path)
    assert read_npz(tmp_path / "ogbn-arxiv.npz").masks["val"].tolist().index(True) == 2


def zipped_ogb(folder: Path) -> bytes:
    """The archive as it is published: one folder, with files beside those that are read."""
    write_ogb(folder / "arxiv")
    (folder / "arxiv" / "RELEASE_v1.txt").write_text("")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return out.getvalue()


class Answer(io.BytesIO):
    """An answer to a request for a file, which says how long it is."""

    def __init__(self, content: bytes, length: int) -> None:
        super().__init__(content)
        self.headers = {"Content-Length": str(length)}


def test_ogb_downloads_its_archive_and_reads_it_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, content = [], zipped_ogb(tmp_path / "made")

    def answer(address: str, timeout: float) -> Answer:
        asked.append(address)
        return Answer(content, len(content))

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    check("ogbn-arxiv", tmp_path)
    assert asked == ["http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"]
    (tmp_path / "ogbn-arxiv.npz").unlink()
    check("ogbn-arxiv", tmp_path)
    assert len(asked) == 1


def test_a_connection_that_ends_too_early_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = zipped_ogb(tmp_path / "made")
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: Answer(content[:-1], len(content)))
    with pytest.raises(FedquiltError, match=r"ogbn-arxiv is not in .* and could not be downloaded"):
        load_graph("ogbn-arxiv", tmp_path)
    assert not (tmp_path / "raw").exists()


def test_half_an_ogb_archive_is_one_sentence(tmp_path: Path) -> None:
    packed = tmp_path / "raw" / "ogb" / "arxiv.zip"
    packed.parent.mkdir(parents=True)
    content = zipped_ogb(tmp_path / "made")
    packed.write_bytes(content[: len(content) // 2])
    with pytest.raises(FedquiltError, match=r"arxiv\.zip is not a zip file, or a part of one; delete it and try again"):
        load_graph("ogbn-arxiv", tmp_path)


@pytest.mark.parametrize("features", ["sparse", "dense"])
def test_syn_cora(tmp_path: Path, features: str) -> None:
    raw = tmp_path / "raw" / "h2gcn"
    raw.mkdir(parents=True)
    adjacency, x = sp.csr_matrix((np.ones(N), RING), shape=(N, N)), sp.csr_matrix(X)
    arrays = {f"adj_{key}": getattr(adjacency, key) for key in ("data", "indices", "indptr", "shape")}
    arrays["labels"] = Y
    if features == "dense":
        arrays["attr_matrix"] = X
    else:
        arrays |= {f"attr_{key}": getattr(x, key) for key in ("data", "indices", "indptr", "shape")}
    np.savez(raw / "h0.50-r2.npz", **arrays, metadata=np.array([{}], dtype=object))
    check("syn-cora:h=0.5,r=2", tmp_path, file="syn-cora-h0.50-r2")


def test_credit(tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "nifty"
    raw.mkdir(parents=True)
    people = [
        "Married,Single,Age,NoDefaultNextMonth",
        *(f"{node},9,{node + 20},{Y[node]}" for node in range(N)),
    ]
    (raw / "credit.csv").write_text("\n".join(people))
    np.savetxt(raw / "credit_edges.txt", RING.T)
    check("credit", tmp_path, np.stack([np.arange(N), np.arange(N) + 20], axis=1).astype(np.float32))


@pytest.mark.parametrize("name", ["cora", "amazon-photo", "roman-empire", "squirrel", "actor", "flickr", "ogbn-arxiv"])
def test_offline_is_one_sentence_at_once(name: str, tmp_path: Path) -> None:
    import torch_geometric.datasets  # noqa: F401 (its import is not what is timed)

    start = time.perf_counter()
    with pytest.raises(FedquiltError) as caught:
        load_graph(name, tmp_path)
    assert time.perf_counter() - start < 5
    assert f"{name} is not in {tmp_path} and could not be downloaded (" in str(caught.value)
    assert f"put {name}.npz there, or point --data or FEDQUILT_DATA at a folder that has it." in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["syn-cora", "credit", "ieee-fraud"])
def test_files_to_place_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        FedquiltError, match=rf"is not in .* and cannot be downloaded: put {name}.*\.npz there, or .*raw"
    ):
        load_graph(name, tmp_path)


def test_half_a_download_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_geometric.datasets import Amazon

    def half(self: Amazon) -> None:
        Path(self.raw_paths[0]).write_bytes(b"half")
        raise RuntimeError("connection lost")

    monkeypatch.setattr(download, "_reach", lambda _: None)
    monkeypatch.setattr(Amazon, "download", half)
    with pytest.raises(FedquiltError, match=r"could not be downloaded .RuntimeError: connection lost."):
        load_graph("amazon-photo", tmp_path)
    assert not list(tmp_path.rglob("*.npz"))


def test_raw_files_that_cannot_be_read(tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "amazon" / "Photo" / "raw"
    raw.mkdir(parents=True)
    (raw / "amazon_electronics_photo.npz").write_bytes(b"not a graph")
    with pytest.raises(
        FedquiltError, match=r"The raw files of amazon-photo in .* could not be read .*delete that folder"
    ):
        load_graph("amazon-photo", tmp_path)


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedquiltError, match=r"is not in .*file, and nothing can be stored there"):
        load_graph("cora", tmp_path / "file")


def test_waits_are_bounded_and_the_setting_restored() -> None:
    before = socket.getdefaulttimeout()
    with download._bounded_waits():
        assert socket.getdefaulttimeout() == download.TIMEOUT
    assert socket.getdefaulttimeout() == before
