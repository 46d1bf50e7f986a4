"""A search on disk: it goes on after a kill with the trials it would have had, and nothing else gets into its folder."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._base import BaseJournalSnapshot

import fedquilt
from fedquilt.common.lock import locked
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.runs.config import RunConfig
from fedquilt.runs.read_config import read_config
from fedquilt.tuning.progress import SearchProgress
from fedquilt.tuning.storage import difference
from support.searches import search, told
from support.small_runs import own_graph

OPTIONS: dict[str, Any] = {"trials": 9, "rounds": 6}


@pytest.fixture(scope="module")
def whole() -> list[tuple[Any, ...]]:
    """What an undisturbed search finds."""
    return told(search(**OPTIONS))


def stop_in(trial: int, share: float) -> Any:
    """A watcher that presses Ctrl-C."""

    def watch(progress: SearchProgress) -> None:
        if progress.trial == trial and progress.share >= share:
            raise KeyboardInterrupt

    return watch


def interrupted(folder: Path, trial: int, share: float = 0.5, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(into=folder, watch=stop_in(trial, share), **{**OPTIONS, **options})


def test_a_search_on_disk_is_the_one_in_memory_and_a_second_call_trains_nothing(tmp_path: Path, whole: list) -> None:
    tuned = search(into=tmp_path / "s", **OPTIONS)
    assert told(tuned) == whole
    seen: list[SearchProgress] = []
    assert told(search(into=tmp_path / "s", watch=seen.append, **OPTIONS)) == told(tuned)
    assert not seen
    assert (tmp_path / "s" / "history.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("stops", [[(1, 0.0), (4, 0.5)], [(9, 1.0)], [(8, 0.5), (8, 0.0)]])
def test_a_search_goes_on_with_the_trials_it_would_have_had(
    tmp_path: Path, stops: list[tuple[int, float]], whole: list
) -> None:
    for trial, share in stops:
        interrupted(tmp_path / "s", trial, share)
    assert told(search(into=tmp_path / "s", **OPTIONS)) == whole
    assert " of 9." in (tmp_path / "s" / "best.yaml").read_text()


def test_more_trials_can_be_asked_for_later(tmp_path: Path, whole: list) -> None:
    search(into=tmp_path / "s", **{**OPTIONS, "trials": 4})
    assert told(search(into=tmp_path / "s", **OPTIONS)) == whole


@pytest.mark.parametrize("left", [b'{"op_code":6,"wor', b'{"op_code":6}'])
def test_what_a_kill_leaves_of_a_line_or_a_lock_is_cleared_away(tmp_path: Path, left: bytes, whole: list) -> None:
    interrupted(tmp_path / "s", 4)
    with open(tmp_path / "s" / "journal.jsonl", "ab") as file:
        file.write(left)
    os.symlink("journal.jsonl", tmp_path / "s" / "journal.jsonl.lock")
    assert told(search(into=tmp_path / "s", **OPTIONS)) == whole


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    search(into=tmp_path / "s", trials=1)
    journal = tmp_path / "s" / "journal.jsonl"
    journal.write_bytes(b"nonsense\n" + journal.read_bytes())
    with pytest.raises(FedquiltError, match="was changed since its trials ended"):
        search(into=tmp_path / "s", trials=2)
    (tmp_path / "s" / "seal.json").unlink()  # an earlier version wrote none
    with pytest.raises(FedquiltError, match="cannot be read as a journal"):
        search(into=tmp_path / "s", trials=2)


def test_nothing_is_pickled_and_the_journal_is_lines_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not issubclass(JournalFileBackend, BaseJournalSnapshot)  # what Optuna would pickle snapshots for

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("pickled")

    for name in ("dumps", "loads", "dump", "load"):
        monkeypatch.setattr(pickle, name, refused)
    search(into=tmp_path / "s", trials=3)
    for line in (tmp_path / "s" / "journal.jsonl").read_text().splitlines():
        json.loads(line)
    assert {p.name for p in (tmp_path / "s").iterdir()} == {
        *(".lock", "tune.json", "journal.jsonl", "best.yaml", "history.png", "graph.npz", "seal.json")
    }


def test_the_best_settings_are_a_config_file_whose_run_has_that_validation(tmp_path: Path) -> None:
    tuned = search(into=tmp_path / "s", seeds=[0, 1], space={"lr": [0.02, 0.05], "epochs": [1, 2]}, trials=5)
    text = (tmp_path / "s" / "best.yaml").read_text()
    assert text.startswith("# Found by 'fedquilt tune', by validation only")
    assert f"{tuned.best_val:.2f}, with the defaults {tuned.default_val:.2f}: mean over seeds 0, 1" in text
    assert "test" not in text.replace(str(tmp_path), "")
    config = RunConfig.build(read_config(tmp_path / "s" / "best.yaml"))
    run = fedquilt.run(**config.model_dump())
    assert sum(max(r["val"] for r in records) for records in run.records.values()) / 2 == tuned.best_val


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rounds": 5}, "it has rounds 6, not 5"),
        ({"seeds": [0, 1]}, r"it has seeds \[0\], not \[0, 1\]"),
        ({"method": "fedprox"}, 'it has method "fedavg", not "fedprox"'),
        ({"settings": {"hidden": 4}}, "it has settings hidden 8, not 4"),
        ({"settings": {"hidden": 8, "lr": 0.1}}, "it has settings lr none, not 0.1"),
        ({"space": {"lr": [0.1, 0.2]}}, r"it has space lr .*, not \[0.1, 0.2\]"),
        ({"dataset": own_graph(nodes=96, masks=True)}, "it has nodes 90, not 96"),
    ],
)
def test_another_search_in_the_folder_is_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    search(into=tmp_path / "s", trials=1, rounds=6)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "s").iterdir()}
    with pytest.raises(FedquiltError, match=f"holds another search: {says}; choose another folder with --into"):
        search(into=tmp_path / "s", **{"trials": 1, "rounds": 6, **options})
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "s").iterdir()} == before


def test_a_search_from_before_an_option_existed_is_resumed_where_the_option_has_its_default(tmp_path: Path) -> None:
    first = search(into=tmp_path / "s", trials=2)
    file = tmp_path / "s" / "tune.json"
    facts = json.loads(file.read_text())
    del facts["config"]["task"], facts["config"]["edge_noise"]
    file.write_text(json.dumps(facts))
    assert told(search(into=tmp_path / "s", trials=2)) == told(first)
    with pytest.raises(FedquiltError, match=r"it has edge_noise 0\.0, not 0\.1"):
        search(into=tmp_path / "s", trials=2, edge_noise=0.1)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FedquiltError, match="is a file"):
        search(into=tmp_path / "file", trials=1)
    with pytest.raises(FedquiltError, match="no search"):
        search(into=tmp_path, trials=1)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "tune.json").write_text("{")
    with pytest.raises(FedquiltError, match="not valid JSON"):
        search(into=tmp_path / "s", trials=1)


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with locked(tmp_path / "s" / ".lock", tmp_path), pytest.raises(FedquiltError, match="is being written by process"):
        search(into=tmp_path / "s", trials=1)
    assert [p.name for p in (tmp_path / "s").iterdir()] == [".lock"]


JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=8
)


@given(st.dictionaries(st.text(), JSON), st.dictionaries(st.text(), JSON))
def test_a_difference_is_found_where_there_is_one(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert difference(one, one) is None
    assert (difference(one, two) is None) == (difference(two, one) is None)
    if one == two:
        assert difference(one, two) is None


def changed(**parts: Any) -> Graph:
    return replace(own_graph(masks=True), **parts)


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (changed(y=own_graph().y[::-1].copy()), r"its graph changed since it began \(labels\)"),
        (changed(x=own_graph().x[::-1].copy()), r"its graph changed since it began \(features\)"),
        (
            changed(masks={"train": np.arange(90) > 60, "val": np.arange(90) < 30, "test": np.arange(90) == 50}),
            r"its graph changed since it began \(given split\)",
        ),
    ],
)
def test_a_search_on_another_graph_is_refused_whatever_is_insisted_on(tmp_path: Path, graph: Graph, says: str) -> None:
    search(into=tmp_path / "s", trials=1, rounds=2)
    with pytest.raises(FedquiltError, match=f"holds another search: {says}; choose another folder with --into"):
        search(into=tmp_path / "s", trials=2, rounds=2, dataset=graph, anyway=True)


def test_a_search_with_another_cut_is_refused(tmp_path: Path) -> None:
    search(into=tmp_path / "s", trials=1, rounds=2)
    path = tmp_path / "s" / "tune.json"
    facts = json.loads(path.read_text())
    facts["ground"]["the cut of seed 0"]["partition"] = "another"
    path.write_text(json.dumps(facts))
    with pytest.raises(FedquiltError, match=r"another search: the cut of seed 0 changed since it began \(partition\)"):
        search(into=tmp_path / "s", trials=2, rounds=2)


def test_a_search_of_an_earlier_version_goes_on_unless_its_edges_changed(tmp_path: Path) -> None:
    search(into=tmp_path / "s", trials=1, rounds=2)
    path = tmp_path / "s" / "tune.json"
    facts = json.loads(path.read_text())
    del facts["ground"]
    path.write_text(json.dumps(facts))
    (tmp_path / "s" / "seal.json").unlink()
    assert len(search(into=tmp_path / "s", trials=2, rounds=2).trials) == 2
    edges = own_graph().edges[:, 1:]
    fewer = {**facts, "graph": {**facts["graph"], "edges": edges.shape[1]}}
    path.write_text(json.dumps(fewer))
    with pytest.raises(FedquiltError, match="it has edges with fingerprint "):
        search(into=tmp_path / "s", trials=3, rounds=2, dataset=changed(edges=edges))


def test_another_version_is_named_and_can_be_insisted_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(into=tmp_path / "s", trials=1, rounds=2)
    monkeypatch.setattr("fedquilt.tuning.search.VERSION", "9.9.9")
    with pytest.raises(FedquiltError) as caught:
        search(into=tmp_path / "s", trials=2, rounds=2)
    assert str(caught.value) == (
        f'{tmp_path / "s"} holds a search that was begun with fedquilt "0.1.0", not "9.9.9"; choose another folder with '
        "--into, or insist with --anyway."
    )
    assert len(search(into=tmp_path / "s", trials=2, rounds=2, anyway=True).trials) == 2


def test_a_value_that_was_changed_in_the_journal_is_found(tmp_path: Path) -> None:
    interrupted(tmp_path / "s", 3, rounds=3)
    path = tmp_path / "s" / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if '"values"' in line)
    step = json.loads(lines[place])
    step["values"] = [99.9]
    path.write_text("".join([*lines[:place], json.dumps(step) + "\n", *lines[place + 1 :]]))
    with pytest.raises(FedquiltError, match=r"journal\.jsonl was changed since its trials ended"):
        search(into=tmp_path / "s", **{**OPTIONS, "rounds": 3})
    (tmp_path / "s" / "seal.json").write_text("{}")
    with pytest.raises(FedquiltError, match=r"seal\.json is damaged"):
        search(into=tmp_path / "s", **{**OPTIONS, "rounds": 3})


def test_what_a_kill_left_before_the_first_file_is_no_other_search(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / ".lock").touch()
    (tmp_path / "s" / ".tune.json.77-0123abcd.tmp").touch()
    search(into=tmp_path / "s", trials=1, rounds=2)
    assert not (tmp_path / "s" / ".tune.json.77-0123abcd.tmp").exists()
