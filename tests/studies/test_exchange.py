"""Cells as one file: what is written is what is read, and nothing that was tampered with gets into a store."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedquilt.common.sealed import facts_sha256
from fedquilt.errors import FedquiltError
from fedquilt.studies import exchange
from fedquilt.studies.cells import Cell
from fedquilt.studies.exchange import export_cells, merge_cells, read_cells
from fedquilt.studies.store import CellStore
from support.tiny_studies import store_cell

Lines = list[Any]


@pytest.fixture
def store(trained: tuple[Cell, Path], tmp_path: Path) -> CellStore:
    """A store with a trained cell."""
    cell, path = trained
    store = CellStore(tmp_path / "studies")
    shutil.copytree(path, store.folder(cell))
    store_cell(store, cell, test=50.0, val=40.0)
    return store


@pytest.fixture
def file(store: CellStore, tmp_path: Path) -> Path:
    """The file of that store's cells."""
    path = tmp_path / "cells.jsonl.gz"
    assert export_cells(store.by_identity().values(), path) == (1, [])
    return path


def test_a_cell_comes_out_as_it_went_in_and_without_models(
    store: CellStore, trained: tuple[Cell, Path], file: Path, tmp_path: Path
) -> None:
    cell, _ = trained
    other = CellStore(tmp_path / "other")
    assert vars(merge_cells([file], other)) == {"new": 1, "known": 0, "completed": 0, "differing": [], "running": []}
    before, after = store.get(cell), other.get(cell)
    assert before is not None
    assert after is not None
    assert after.facts == before.facts
    names = {path.relative_to(after.folder).as_posix() for path in after.folder.rglob("*") if path.is_file()}
    assert names == {
        *("cell.json", "config.json", "seal.json", ".lock"),
        *(f"seed-0/{name}" for name in ("metrics.jsonl", "seal.json", "similarity.npz", "summary.json")),
    }
    for name in names - {"config.json", "cell.json", ".lock"}:
        assert (after.folder / name).read_bytes() == (before.folder / name).read_bytes()
    assert merge_cells([file, file], other).known == 2
    again = tmp_path / "again.jsonl.gz"
    export_cells(other.by_identity().values(), again)
    assert again.read_bytes() == file.read_bytes()


def test_no_folder_of_this_machine_is_in_the_file(store: CellStore, trained: tuple[Cell, Path], tmp_path: Path) -> None:
    path = store.folder(trained[0]) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "data": "/home/me/graphs"}))
    export_cells(store.by_identity().values(), tmp_path / "file")
    assert b"/home/me" not in gzip.decompress((tmp_path / "file").read_bytes())


def test_metrics_can_be_left_out_and_come_later(
    store: CellStore, trained: tuple[Cell, Path], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief, other = tmp_path / "brief", CellStore(tmp_path / "other")
    assert export_cells(store.by_identity().values(), brief, metrics=False) == (1, [])
    merge_cells([brief], other)
    assert [path.name for path in other.folder(trained[0]).iterdir() if path.name != ".lock"] == ["cell.json"]
    assert merge_cells([file], other).completed == 1
    assert (other.folder(trained[0]) / "seed-0" / "metrics.jsonl").is_file()
    monkeypatch.setattr(exchange, "_LONGEST", 5000)
    assert export_cells(store.by_identity().values(), tmp_path / "long") == (1, [trained[0].key])
    assert [cell.files for cell in read_cells(tmp_path / "long")] == [{}]


def test_another_result_for_the_same_cell_is_named_and_the_one_here_stays(
    trained: tuple[Cell, Path], file: Path, tmp_path: Path
) -> None:
    cell, other = trained[0], CellStore(tmp_path / "other")
    store_cell(other, cell, test=51.0, val=40.0, seconds=9.0)
    merged = merge_cells([file], other)
    assert (merged.new, merged.known) == (0, 0)
    assert len(merged.differing) == 1
    assert merged.differing[0].endswith("test is 51.00 here and 50.00 there")
    kept = other.get(cell)
    assert kept is not None
    assert kept.measures["test"] == 51.0
    shutil.rmtree(other.into)
    store_cell(other, cell, test=50.0, val=40.0, seconds=9.0)  # the same result, in another time
    assert merge_cells([file], other).known == 1


def test_a_run_that_was_begun_is_replaced_and_one_that_runs_is_left_alone(
    trained: tuple[Cell, Path], file: Path, tmp_path: Path
) -> None:
    cell, other = trained[0], CellStore(tmp_path / "other")
    other.fail(cell, "it rained")
    with other.lock(cell) as held:
        assert held
        assert len(merge_cells([file], other).running) == 1
        assert other.get(cell) is None
    assert merge_cells([file], other).new == 1
    assert other.failures() == {}


def seal(lines: Lines) -> Lines:
    """The same with hashes that are right, as someone could make them."""
    import hashlib

    whole = hashlib.sha256()
    for place, line in enumerate(lines[1:-1], start=1):
        rest = {name: value for name, value in line.items() if name != "sha256"}
        lines[place] = {**rest, "sha256": facts_sha256(rest)}
        whole.update(exchange._line(lines[place]))
    lines[-1] = {"cells": len(lines) - 2, "sha256": whole.hexdigest()}
    return lines


def changed(name: str, value: Any) -> Callable[[Lines], Lines]:
    return lambda lines: seal([lines[0], {**lines[1], name: value}, lines[2]])


def told(name: str, value: Any) -> Callable[[Lines], Lines]:
    """A cell that says something else, and is sealed again."""

    def change(lines: Lines) -> Lines:
        facts = {**lines[1]["cell"], name: value}
        del facts["sha256"]
        return seal([lines[0], {**lines[1], "cell": {**facts, "sha256": facts_sha256(facts)}}, lines[2]])

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[:-1], "its end is missing"),
        (lambda lines: [*lines, lines[1]], "it goes on after its end"),
        (lambda lines: [lines[0], lines[2]], "its seal is of other cells"),
        (lambda lines: [lines[0], {**lines[1], "key": "0" * 32}, lines[2]], "is not what was sealed"),
        (lambda lines: seal([lines[0], lines[1], lines[1], lines[2]]), "twice"),
        (lambda lines: [lines[0], [], lines[2]], "a line holds no cell"),
        (lambda lines: [{"fedquilt": "else"}, *lines[1:]], "it has another beginning"),
        (changed("key", "../../../../etc/cron.d/cell"), "a line holds no cell"),
        (changed("key", "x" * 32), "a line holds no cell"),
        (changed("more", 1), "a line holds no cell"),
        (changed("files", {"../outside.json": "x"}), "a file that is none of a report's"),
        (changed("files", {"/outside.json": "x"}), "a file that is none of a report's"),
        (changed("files", {"seed-0/models.safetensors": "x"}), "a file that is none of a report's"),
        (changed("files", {"seed-0/../config.json": "x"}), "a file that is none of a report's"),
        (changed("files", {"config.json": ["x"]}), "a file that is none of a report's"),
        (changed("files", {"seed-0/findings.npz": "no base64!"}), "cannot be read to its end"),
        (changed("files", []), "holds no result"),
        (changed("cell", {"identity": "x"}), "holds no result"),
        (told("measures", {"test": "high"}), "holds no result"),
        (told("measures", [1.0]), "holds no result"),
        (told("device", "\x1b[2J"), "holds no result"),
        (told("finished", True), "holds no result"),
        (told("versions", {}), "holds no result"),
        (told("config", {"method": ["fedavg"]}), "holds no result"),
        (told("config", {"seeds": 1}), "holds no result"),
    ],
)
def test_what_was_tampered_with_is_refused_and_nothing_is_written(
    file: Path, tmp_path: Path, change: Callable[[Lines], Lines], says: str
) -> None:
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    bad = tmp_path / "bad.jsonl.gz"
    bad.write_bytes(gzip.compress(b"".join(map(exchange._line, change(lines)))))
    other = CellStore(tmp_path / "other")
    with pytest.raises(FedquiltError) as caught:
        merge_cells([file, bad], other)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{bad} is no whole file of 'fedquilt study export': ")
    assert list(other.into.iterdir()) == []


def test_damaged_and_huge_files_are_refused(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, bad, whole = CellStore(tmp_path / "other"), tmp_path / "bad", file.read_bytes()
    for data in (b"", b"no gzip", whole[:-20], whole[:200], whole[:100] + b"\0\0" + whole[102:], whole + b"more"):
        bad.write_bytes(data)
        with pytest.raises(FedquiltError, match="is no whole file"):
            merge_cells([bad], other)
    monkeypatch.setattr(exchange, "_LONGEST", 2**16)
    bad.write_bytes(gzip.compress(b"[" * 2**24))
    with pytest.raises(FedquiltError, match=r"a line is longer than 65\.5 kB"):
        merge_cells([bad], other)
    with pytest.raises(FedquiltError, match="There is no file"):
        merge_cells([tmp_path / "none"], other)
    with pytest.raises(FedquiltError, match="could not be opened"):
        merge_cells([tmp_path], other)
    newer = gzip.compress(exchange._line({"fedquilt": "cells", "format": 2}))
    bad.write_bytes(newer)
    with pytest.raises(FedquiltError, match="written by a newer fedquilt"):
        merge_cells([bad], other)
    monkeypatch.undo()
    monkeypatch.setattr(exchange.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 5000))
    with pytest.raises(FedquiltError, match="would fill the disk"):
        merge_cells([file], other)
    assert list(other.into.iterdir()) == []
