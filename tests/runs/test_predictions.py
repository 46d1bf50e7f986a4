"""Predictions as rows, columns, a DataFrame, and files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.predictions import Predictions, check_ending, joined
from fedquilt.tasks.node_classification import NodeClassification

VALUES = np.array([[0.75, 0.25], [0.125, 0.875]], dtype=np.float32)


def some(client: int | None = None) -> Predictions:
    beside = {}
    if client is not None:
        beside = {
            "clients": np.full(2, client),
            "parts": np.array(["train", ""]),
            "labels": np.array(["red", ""]),
        }
    return Predictions(NodeClassification(), np.array(["007", "b"]), VALUES, ("blue", "red"), ("odd",), **beside)


def test_a_row_a_node_with_what_is_known_of_it() -> None:
    assert list(some().rows()) == [
        ["id", "class", "p_blue", "p_red"],
        ["007", "blue", "0.75", "0.25"],
        ["b", "red", "0.125", "0.875"],
    ]
    assert list(some(3).rows())[:2] == [
        ["client", "id", "part", "label", "class", "p_blue", "p_red"],
        ["3", "007", "train", "red", "blue", "0.75", "0.25"],
    ]
    assert len(some()) == 2
    assert "2 nodes in 2 classes by 1 clients' models" in repr(some(3))


def test_columns_are_the_rows() -> None:
    for predictions in (some(), some(3)):
        header, *rows = predictions.rows()
        columns = predictions.columns()
        assert list(columns) == header
        assert columns["p_red"].dtype == np.float32
        assert [[str(column[n]) for column in columns.values()] for n in range(2)] == rows
    frame = pytest.importorskip("pandas") and some(3).to_frame()
    assert frame["id"].tolist() == ["007", "b"]
    assert frame["client"].tolist() == [3, 3]


def test_files_say_the_same_by_their_ending(tmp_path: Path) -> None:
    predictions = some(3)
    for name in ("out.csv", "out.json"):
        predictions.write(tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    with open(tmp_path / "out.csv", newline="") as file:
        assert list(csv.reader(file)) == list(predictions.rows())
    rows = json.loads((tmp_path / "out.json").read_text())
    assert rows[1] == {
        "client": 3, "id": "b", "part": "", "label": "", "class": "red", "p_blue": 0.125, "p_red": 0.875
    }  # fmt: skip
    parquet = pytest.importorskip("pyarrow.parquet")
    predictions.write(tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist() == rows


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FedquiltError, match=r"has to end in \.csv or \.json or \.parquet"):
        some().write(tmp_path / "out.xlsx")
    monkeypatch.setattr("fedquilt.runs.predictions.find_spec", lambda name: None)
    with pytest.raises(FedquiltError, match="needs pyarrow"):
        check_ending(tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())


def test_clients_one_after_the_other() -> None:
    both = joined([some(0), some(2)])
    assert both.clients is not None
    assert both.clients.tolist() == [0, 0, 2, 2]
    assert both.values.shape == (4, 2)
    assert both.warnings == ("odd",)
    assert joined([some()]).clients is None
