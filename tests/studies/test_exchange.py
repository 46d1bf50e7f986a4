"""Cells as one file: what is written is what is read, without what others should not have."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from fedquilt.common.sealed import facts_sha256
from fedquilt.errors import FedquiltError
from fedquilt.studies import exchange
from fedquilt.studies.cells import Cell
from fedquilt.studies.exchange import export_cells, read_cells
from fedquilt.studies.store import CellStore
from support.tiny_studies import cells_of, study_of


def test_what_is_written_is_what_is_read(store: CellStore, trained: tuple[Cell, Path], file: Path) -> None:
    (cell,) = read_cells(file)
    stored = store.get(trained[0])
    assert stored is not None
    assert (cell.key, cell.facts) == (trained[0].key, stored.facts)
    for name in cell.files.keys() - {"config.json"}:
        assert cell.files[name] == (stored.folder / name).read_bytes()


def test_the_same_cells_give_the_same_bytes_and_those_with_like_options_are_neighbours(tmp_path: Path) -> None:
    store = CellStore(tmp_path / "studies")
    for cell in cells_of(study_of(tmp_path)):
        facts = {"measures": {}, "finished": 1.0, "device": "CPU", "versions": {"fedquilt": "0", "torch": "0"}}
        store.finish(cell, {**facts, "config": {"method": cell.config.method}}, keep_models=True)
    cells = list(store.by_identity().values())
    assert export_cells(cells, tmp_path / "one") == export_cells([*cells[::-1], cells[0]], tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    found = [cell.facts["config"]["method"] for cell in read_cells(tmp_path / "one")]
    assert found == sorted(found)


def test_a_damaged_file_of_a_cell_is_one_sentence_and_leaves_nothing(
    store: CellStore, trained: tuple[Cell, Path], tmp_path: Path
) -> None:
    cells = store.by_identity().values()
    for name in ("config.json", "seed-0/metrics.jsonl"):
        (store.folder(trained[0]) / name).write_bytes(b"{\xff")
        with pytest.raises(FedquiltError, match=r"^A file in .* is damaged \(.*\); delete that folder"):
            export_cells(cells, tmp_path / "file")
        assert [path.name for path in tmp_path.iterdir()] == ["studies"]
    assert export_cells(cells, tmp_path / "file", metrics=False) == (1, [])


def test_line_ends_are_those_of_the_files(store: CellStore, trained: tuple[Cell, Path], tmp_path: Path) -> None:
    path = store.folder(trained[0]) / "seed-0" / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    export_cells(store.by_identity().values(), tmp_path / "file")
    (cell,) = read_cells(tmp_path / "file")
    assert cell.files["seed-0/metrics.jsonl"] == path.read_bytes()


def test_files_of_the_first_format_are_read(file: Path, tmp_path: Path) -> None:
    """Each cell's line had a hash of its own."""
    _, line, _ = (json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines())
    old = exchange._line({**line, "sha256": facts_sha256(line)})
    end = {"cells": 1, "sha256": hashlib.sha256(old).hexdigest()}
    lines = exchange._line({"fedquilt": "cells", "format": 1}) + old + exchange._line(end)
    (tmp_path / "old").write_bytes(gzip.compress(lines))
    assert list(read_cells(tmp_path / "old")) == list(read_cells(file))


def test_no_folder_of_this_machine_is_in_the_file(store: CellStore, trained: tuple[Cell, Path], tmp_path: Path) -> None:
    path = store.folder(trained[0]) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "data": "/home/me/graphs"}))
    export_cells(store.by_identity().values(), tmp_path / "file")
    assert b"/home/me" not in gzip.decompress((tmp_path / "file").read_bytes())
