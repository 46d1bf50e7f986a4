"""Readers of raw files: what they read, and one sentence for each fault. `test_download` reads whole datasets."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.datasets.raw_files import read_h2gcn, read_nifty_credit, read_ogb
from fedquilt.errors import FedquiltError


def write_gzipped(path: Path, rows: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(rows.encode()))


def test_ogb_without_a_split_has_no_masks(tmp_path: Path) -> None:
    write_gzipped(tmp_path / "raw" / "edge.csv.gz", "0,1\n1,2\n")
    write_gzipped(tmp_path / "raw" / "node-feat.csv.gz", "1.5,0\n0,1\n1,1\n")
    write_gzipped(tmp_path / "raw" / "node-label.csv.gz", "0\n1\n0\n")
    graph = read_ogb(tmp_path, "ogb")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.x[0].tolist() == [1.5, 0.0]
    assert graph.y.tolist() == [0, 1, 0]
    assert graph.masks is None
    (tmp_path / "raw" / "node-feat.csv.gz").write_bytes(b"broken")
    with pytest.raises(FedquiltError, match=r"node-feat.csv.gz cannot be read as a table of numbers"):
        read_ogb(tmp_path, "ogb")


def test_h2gcn_needs_its_arrays_and_drops_stored_zeros(tmp_path: Path) -> None:
    adjacency = sp.csr_matrix((np.array([1.0, 0.0]), ([0, 1], [1, 2])), shape=(3, 3))
    arrays = {f"adj_{key}": getattr(adjacency, key) for key in ("data", "indices", "indptr", "shape")}
    arrays |= {"attr_matrix": np.eye(3), "labels": np.array([0, 1, 0])}
    np.savez(tmp_path / "one.npz", **arrays)
    assert read_h2gcn(tmp_path / "one.npz", "one").edges.tolist() == [[0], [1]]
    for missing in ("labels", "adj_indptr"):
        np.savez(tmp_path / "two.npz", **{key: value for key, value in arrays.items() if key != missing})
        with pytest.raises(FedquiltError, match=f"has no array '{missing}'; it is not a graph as H2GCN publishes them"):
            read_h2gcn(tmp_path / "two.npz", "two")


def test_credit_leaves_out_the_label_and_single(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match=r"There is no file '.*credit.csv'; put credit.csv and credit_edges.txt"):
        read_nifty_credit(tmp_path, "credit")
    (tmp_path / "credit.csv").write_text("Married,Single,Age,NoDefaultNextMonth\n1,9,20,0\n0,9,30,1\n")
    (tmp_path / "credit_edges.txt").write_text("0.0 1.0\n")
    graph = read_nifty_credit(tmp_path, "credit")
    assert graph.x.tolist() == [[1, 20], [0, 30]]
    assert graph.y.tolist() == [0, 1]
    (tmp_path / "credit_edges.txt").write_text("0 1 2\n")
    with pytest.raises(FedquiltError, match="is not a list of edges"):
        read_nifty_credit(tmp_path, "credit")
    (tmp_path / "credit.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FedquiltError, match="no column 'NoDefaultNextMonth'; it is not NIFTY's"):
        read_nifty_credit(tmp_path, "credit")


def test_a_gzip_bomb_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raw").mkdir()
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", "1M")
    for content in (b"0,1\n" * 5_000_000, b"0," * 10_000_000):
        (tmp_path / "raw" / "edge.csv.gz").write_bytes(gzip.compress(content, 1))
        with pytest.raises(FedquiltError, match=r"edge\.csv\.gz is too large"):
            read_ogb(tmp_path, "bomb")


def test_a_csv_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "credit.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "credit_edges.txt").write_text("0 1\n")
    with pytest.raises(FedquiltError, match=r"credit\.csv is not a csv file in UTF-8"):
        read_nifty_credit(tmp_path, "credit")
