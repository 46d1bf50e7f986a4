"""Merging: cells come out as they went in, and nothing that was tampered with or cut short gets into a store."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedquilt.common.sealed import facts_sha256
from fedquilt.errors import FedquiltError
from fedquilt.runs import compute_version
from fedquilt.studies import exchange, merge
from fedquilt.studies.cells import Cell
from fedquilt.studies.exchange import export_cells, read_cells
from fedquilt.studies.merge import merge_cells
from fedquilt.studies.store import CellStore, read_cell
from support.kills import killed_at
from support.tiny_studies import cells_of, store_cell, study_of

Lines = list[Any]


def test_a_cell_comes_out_as_it_went_in_and_without_models(
    store: CellStore, trained: tuple[Cell, Path], file: Path, tmp_path: Path
) -> None:
    cell, _ = trained
    other = CellStore(tmp_path / "other")
    assert vars(merge_cells([file], other)) == {
        **{"new": 1, "known": 0, "stale": 0, "completed": 0},
        **{"differing": [], "running": []},
    }
    before, after = store.get(cell), other.get(cell)
    assert before is not None
    assert after is not None
    assert after.facts == before.facts
    names = {path.relative_to(after.folder).as_posix() for path in after.folder.rglob("*") if path.is_file()}
    assert names == {
        *("cell.json", "config.json", "seal.json"),
        *(f"seed-0/{name}" for name in ("metrics.jsonl", "seal.json", "similarity.npz", "summary.json")),
    }
    for name in names - {"config.json"}:
        assert (after.folder / name).read_bytes() == (before.folder / name).read_bytes()
    assert merge_cells([file, file], other).known == 2
    again = tmp_path / "again.jsonl.gz"
    export_cells(other.by_identity().values(), again)
    assert again.read_bytes() == file.read_bytes()


def test_metrics_can_be_left_out_and_come_later(
    store: CellStore, trained: tuple[Cell, Path], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief, other = tmp_path / "brief", CellStore(tmp_path / "other")
    assert export_cells(store.by_identity().values(), brief, metrics=False) == (1, [])
    merge_cells([brief], other)
    assert [path.name for path in other.folder(trained[0]).iterdir()] == ["cell.json"]
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


def test_cells_of_another_version_of_the_computation_are_counted(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_version, "COMPUTE_VERSION", 10**6)
    merged = merge_cells([file], CellStore(tmp_path / "other"))
    assert (merged.new, merged.stale) == (1, 1)


def test_a_kill_at_any_write_leaves_cells_whole_or_out_and_the_next_merge_has_all(
    store: CellStore, tmp_path: Path
) -> None:
    for cell in cells_of(study_of(tmp_path))[:2]:
        store_cell(store, cell, test=1.0)
    cells, kills = store.by_identity().values(), 0
    brief, file = tmp_path / "brief", tmp_path / "all"
    export_cells(list(cells)[:1], brief, metrics=False)
    export_cells(cells, file)
    other = CellStore(tmp_path / "other")
    merge_cells([brief], other)
    while killed_at(kills + 1, other.into, lambda: merge_cells([file], other)):
        kills += 1
        assert all(map(read_cell, other.cells.glob("[0-9a-f]" * 32)))
        merge_cells([file], other)
        assert [path.name for path in other.into.iterdir()] == ["cells"]
        export_cells(other.by_identity().values(), tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == file.read_bytes()
        shutil.rmtree(other.into)
        merge_cells([brief], other)
    assert kills > 20


def seal(lines: Lines) -> Lines:
    """The same with a hash that is right, as someone could make it."""
    whole = hashlib.sha256()
    for line in lines[1:-1]:
        whole.update(exchange._line(line))
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
        (lambda lines: [lines[0], {**lines[1], "key": "0" * 32}, lines[2]], "its seal is of other cells"),
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
        (told("config", {"dataset": ["cora"]}), "holds no result"),
        (told("config", {"data": "/home/you"}), "holds no result"),
        (told("config", {"clients_from": "/home/you"}), "holds no result"),
        (told("config", {"settings": [[[[[[[[[[1]]]]]]]]]]}), "cannot be read to its end"),
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
    assert not other.into.exists()


def test_damaged_and_huge_files_are_refused(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, bad, whole = CellStore(tmp_path / "other"), tmp_path / "bad", file.read_bytes()
    for data in (
        b"",
        b"no gzip",
        b"\x1f\x8bno gzip",
        whole[:-20],
        whole[:200],
        whole[:100] + b"\0\0" + whole[102:],
        whole + b"more",
    ):
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
    newer = gzip.compress(exchange._line({"fedquilt": "cells", "format": 3}))
    bad.write_bytes(newer)
    with pytest.raises(FedquiltError, match="written by a newer fedquilt"):
        merge_cells([bad], other)
    monkeypatch.undo()
    monkeypatch.setattr(merge.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 5000))
    with pytest.raises(FedquiltError, match="would fill the disk"):
        merge_cells([file], other)
    assert not other.into.exists()
