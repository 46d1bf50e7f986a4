"""A process that is killed just before any of its writes leaves nothing, or something that goes on to the same numbers.

Folders are made with a kill at every write. What trains is killed at some; EVERY_KILL=1 in the environment tries all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.common.new_folder import is_leftover
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.runs.compare import Comparison, comparison_configs
from fedquilt.runs.comparison_folder import is_comparison
from fedquilt.runs.config import GIVEN, RunConfig
from fedquilt.runs.execute import create_folder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.run_cell import DONE, run_cell
from fedquilt.studies.store import CellStore
from support.cli import outcome
from support.kills import killed_at
from support.searches import search, told
from support.small_runs import SMALL, own_graph
from support.tiny_studies import cells_of, study_of

pytestmark = pytest.mark.usefixtures("elsewhere")
OPTIONS: dict[str, Any] = {"clients": 3, "rounds": 2, "device": "cpu"}


def kills(folder: Path, work: Callable[[], Any], every: int = 1) -> Iterator[int]:
    """Do `work` again and again, killed before its first write, its second, ... until it comes to its end."""
    every = 1 if os.environ.get("EVERY_KILL") else every
    write = 1
    while killed_at(write, folder, work):
        yield write
        write += every


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if is_leftover(path.name)]


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path)


@pytest.mark.parametrize("exists", [False, True])
def test_making_a_run(tmp_path: Path, exists: bool) -> None:
    given = load_graph(own_graph())
    config = RunConfig.build({**OPTIONS, "method": "majority", "dataset": GIVEN})
    place = tmp_path / "at" / "out"

    def begin() -> None:
        create_folder(ResolvedRun(config, given), place, given)

    place.parent.mkdir()
    count = 0
    if exists:
        place.mkdir()
    for _ in kills(place.parent, begin):
        count += 1
        if (place / "config.json").exists():
            with pytest.raises(FedquiltError, match=r"already holds a run; .*'fedquilt resume "):
                begin()
            fedquilt.resume(place)
        else:
            with pytest.raises(FedquiltError, match=r"There is no run folder|it has no config\.json"):
                fedquilt.resume(place)
            fedquilt.run("majority", own_graph(), out=place, **OPTIONS)
        assert (place / "result.json").exists()
        assert leftovers(place.parent) == []
        emptied(place.parent)
        if exists:
            place.mkdir()
    assert count > 12


def test_making_a_run_under_a_name_of_its_own(tmp_path: Path) -> None:
    config = RunConfig.build({**OPTIONS, "method": "majority"})
    resolved = ResolvedRun(config)
    for _ in kills(tmp_path, lambda: create_folder(resolved, None)):
        whole = [path.name for path in (tmp_path / "runs").glob("[!.]*")] if (tmp_path / "runs").exists() else []
        assert all((tmp_path / "runs" / name / "config.json").exists() for name in whole)
        assert create_folder(resolved, None).path.name == ("majority-patchwork-disjoint-3" + ("-2" if whole else ""))
        assert leftovers(tmp_path) == []
        emptied(tmp_path)


def test_making_a_comparison(tmp_path: Path) -> None:
    given = load_graph(own_graph())
    configs = comparison_configs(["majority", "local"], {**OPTIONS, "dataset": GIVEN})
    place, count = tmp_path / "at" / "out", 0
    place.parent.mkdir()
    for write in kills(place.parent, lambda: Comparison.create(configs, place, given)):
        count += 1
        if is_comparison(place):
            with pytest.raises(FedquiltError, match=r"already holds a run; .*'fedquilt resume "):
                Comparison.create(configs, place, given)
            made = Comparison.open(place)
        else:
            made = Comparison.create(configs, place, given)
        assert [config.method for config in made.configs] == ["majority", "local"]
        if write % 8 == 0:
            assert [run.result["method"] for run in made.runs()] == ["majority", "local"]
        assert leftovers(place.parent) == []
        emptied(place.parent)
    assert count > 12


def test_a_comparison_whose_second_run_is_being_made(tmp_path: Path) -> None:
    place = tmp_path / "out"
    made = Comparison.create(comparison_configs(["majority", "local"], OPTIONS), place)
    next(iter(made.runs()))  # the first is done
    whole = shutil.copytree(place, tmp_path / "copy")

    def second() -> None:
        list(Comparison.open(place).runs())

    for _ in kills(place, second, every=29):
        assert [run.result["method"] for run in Comparison.open(place).runs()] == ["majority", "local"]
        assert leftovers(place) == []
        shutil.rmtree(place)
        shutil.copytree(whole, place)


def test_training_a_run(tmp_path: Path) -> None:
    options = {**SMALL, "rounds": 3, "checkpoint_seconds": 0.0, "out": tmp_path / "at" / "run"}
    (tmp_path / "at").mkdir()
    fedquilt.run("fedpub", **{**options, "out": "whole"})
    numbers = outcome(tmp_path / "whole")
    count = 0
    for _ in kills(tmp_path / "at", lambda: fedquilt.run("fedpub", **options), every=29):
        count += 1
        if (options["out"] / "config.json").exists():
            fedquilt.resume(options["out"])
        else:
            fedquilt.run("fedpub", **options)
        assert outcome(options["out"]) == numbers
        assert leftovers(tmp_path / "at") == []
        fedquilt.load_run(options["out"])
        emptied(tmp_path / "at")
    assert count > 3


def test_a_cell_of_a_study(tmp_path: Path) -> None:
    cell, into = cells_of(study_of(tmp_path))[0], tmp_path / "studies"
    for _ in kills(into, lambda: run_cell(cell, CellStore(into)), every=41):
        assert run_cell(cell, CellStore(into)) == DONE
        stored = CellStore(into).get(cell)
        assert stored is not None
        assert "begun_again" not in stored.facts
        assert CellStore(into).by_identity() == {cell.identity: stored}
        emptied(into)


def test_beginning_a_search(tmp_path: Path) -> None:
    into = tmp_path / "search"
    options = {"trials": 1, "rounds": 2}
    found = told(search(**options))
    for _ in kills(into, lambda: search(into=into, **options), every=37):
        assert told(search(into=into, **options)) == found
        assert leftovers(into) == []
        shutil.rmtree(into)


# -- the order in which things reach the disk -------------------------------------------------------------------------


def test_records_reach_the_disk_before_the_checkpoint_or_the_summary_that_replaces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure a file has at least what was synced; a checkpoint must not say more than the metrics then do."""
    synced: dict[str, int] = {}
    named: set[str] = set()  # folders whose entries were synced since they were made
    sync, replace = os.fsync, os.replace
    seen = []

    def fsync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if os.path.isdir(path):
            named.update(os.path.join(path, name) for name in os.listdir(path))
        else:
            synced[path] = os.fstat(handle).st_size
        sync(handle)

    def replaced(old: Any, new: Any) -> None:
        new = Path(new)
        metrics = (new.parent.parent if new.parent.name == "checkpoints" else new.parent) / "metrics.jsonl"
        if new.suffix == ".json" and new.name.startswith("round-"):
            sealed = json.loads(Path(old).read_text())["facts"]["beside"]["metrics"]
            assert synced[str(metrics)] >= sealed["bytes"] == metrics.stat().st_size
            assert {str(metrics), str(metrics.parent), str(new.parent)} <= named
            seen.append("checkpoint")
        if new.name == "summary.json":
            assert synced[str(metrics)] == metrics.stat().st_size
            assert (new.parent / "seal.json").exists()
            seen.append("summary")
        assert str(old) in synced, f"{new.name} replaces a file before it is on the disk"
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replaced)
    fedquilt.run("fedavg", **{**SMALL, "checkpoint_seconds": 0.0}, out=tmp_path / "run")
    assert seen == ["checkpoint"] * 3 + ["summary"]
