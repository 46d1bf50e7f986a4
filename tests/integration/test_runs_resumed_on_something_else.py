"""A run that was stopped goes on with what it began with, or says in one sentence what changed and trains nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.partition.make import make_partition
from fedquilt.partition.storage import save
from fedquilt.runs import seal
from fedquilt.runs.folder import RunFolder
from support.cli import outcome, without_seconds
from support.small_runs import SMALL, own_graph, stop_after

OPTIONS: dict[str, Any] = {**SMALL, "rounds": 4, "seeds": [0, 1], "checkpoint_seconds": 0.0, "clients": None}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph, a partition, a run that was stopped in its second seed, and one that was not."""
    folder = tmp_path_factory.mktemp("made")
    write_npz(own_graph(), folder / "mine.npz")
    save(make_partition(own_graph(), "random", 3, 0), folder / "cut.npz")
    options = OPTIONS | {"partition": str(folder / "cut.npz")}
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", folder / "mine.npz", out=folder / "run", watch=stop_after(1, 2), **options)
    fedquilt.run("fedavg", folder / "mine.npz", out=folder / "whole", **options)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which the run finds under the paths that it has in its config.json."""
    shutil.copytree(made, tmp_path / "made")
    change_config(
        tmp_path / "made", dataset=str(tmp_path / "made" / "mine.npz"), partition=str(tmp_path / "made" / "cut.npz")
    )
    monkeypatch.chdir(tmp_path / "made")
    return tmp_path / "made"


def change_config(here: Path, run: str = "run", **change: Any) -> None:
    path = here / run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def refused(**how: Any) -> str:
    """The sentence with which a resume is refused; nothing in the folder changed."""
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(FedquiltError) as caught:
        fedquilt.resume("run", **how)
    assert {p: p.read_bytes() for p in Path("run").rglob("*") if p.is_file() and p.name != ".lock"} == before
    return str(caught.value)


def test_it_goes_on_where_nothing_changed(here: Path) -> None:
    fedquilt.resume("run")
    assert outcome(here / "run")[0] == outcome(here / "whole")[0]


def test_where_it_is_computed_may_change(here: Path) -> None:
    (here / "elsewhere").mkdir()
    shutil.move(here / "mine.npz", here / "elsewhere" / "other-name.npz")
    change_config(here, device="auto", cohort_size=2, checkpoint_seconds=5.0, data=str(here))
    change_config(here, dataset=str(here / "elsewhere" / "other-name.npz"))
    assert fedquilt.resume("run").result["seeds"][1]["best_round"] >= 0


def test_a_graph_that_has_the_name_of_its_file_keeps_that_of_the_beginning(tmp_path: Path) -> None:
    graph = own_graph()
    np.savez(tmp_path / "first.npz", edge_index=graph.edges, x=graph.x, y=graph.y)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", tmp_path / "first.npz", out=tmp_path / "run", watch=stop_after(0, 1), **SMALL)
    shutil.move(tmp_path / "first.npz", tmp_path / "second.npz")
    change_config(tmp_path, dataset=str(tmp_path / "second.npz"))
    assert fedquilt.resume(tmp_path / "run").result["dataset"] == "first"
    assert fedquilt.load_run(tmp_path / "run").result["dataset"] == "first"


def with_a_node(graph: Graph) -> Graph:
    return replace(graph, x=np.vstack([graph.x, graph.x[:1]]), y=np.append(graph.y, 0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: replace(g, y=g.y[::-1].copy()), "its labels differ"),
        (lambda g: replace(g, x=g.x[::-1].copy()), "its features differ"),
        (with_a_node, None),
    ],
)
@pytest.mark.parametrize("anyway", [False, True])
def test_another_graph_under_the_same_name_is_never_trained_on(
    here: Path, change: Callable[[Graph], Graph], said: str | None, anyway: bool
) -> None:
    write_npz(change(own_graph()), here / "mine.npz")
    sentence = refused(anyway=anyway)
    if said is not None:  # with other nodes or edges, the saved partition is refused before
        assert f"the graph {here / 'mine.npz'} changed since it began: {said}; put back" in sentence


def test_a_partition_that_was_made_again_is_never_trained_on(here: Path) -> None:
    save(make_partition(own_graph(), "random", 3, 1), here / "cut.npz")
    assert f"the partition {here / 'cut.npz'} changed: clients hold other nodes" in refused(anyway=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"split": "60/20/20"}, 'split was "20/40/40" and is now "60/20/20" in config.json'),
        ({"settings": {"hidden": 8, "lr": 0.5}}, "settings.lr was not set and is now 0.5 in config.json"),
        ({"epochs": 7}, "and is now 7 in config.json"),
        ({"participation": 0.5}, "participation was 1.0 and is now 0.5 in config.json"),
        ({"rounds": 2}, "rounds was 4 and is now 2 in config.json"),
        ({"rounds": 9}, "and seed 0 is finished, with the rounds from before"),
        ({"seeds": [1]}, "seeds was [0, 1] and is now [1] in config.json"),
    ],
)
def test_an_option_that_was_changed_by_hand_is_found(here: Path, change: dict[str, Any], said: str) -> None:
    change_config(here, **change)
    assert said in refused(anyway=True)
    assert said in refused()


def test_another_version_is_named_and_can_be_insisted_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "VERSION", "9.9.9")
    assert "it was begun with fedquilt 0.1.0 and this is 9.9.9; insist with --anyway" in refused()
    with pytest.raises(KeyboardInterrupt):
        fedquilt.resume("run", stop_after(1, 3), anyway=True)
    assert fedquilt.resume("run").result["seeds"]  # it was accepted, and is in the seal
    assert RunFolder.open(here / "run").seal["accepted"] == ["it was begun with fedquilt 0.1.0 and this is 9.9.9"]
    assert outcome(here / "run")[0] == outcome(here / "whole")[0]


def test_more_seeds_are_trained_where_the_user_insists(here: Path) -> None:
    fedquilt.resume("run")
    change_config(here, seeds=[0, 1, 5])
    assert "seeds was [0, 1] and is now [0, 1, 5] in config.json; insist with --anyway" in refused()
    run = fedquilt.resume("run", anyway=True)
    assert [entry["seed"] for entry in run.result["seeds"]] == [0, 1, 5]
    assert fedquilt.load_run("run").result == run.result


def test_more_rounds_are_those_of_a_run_that_was_asked_for_them(here: Path) -> None:
    options = OPTIONS | {"partition": str(here / "cut.npz"), "seeds": [0]}
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", here / "mine.npz", out="short", watch=stop_after(0, 1), **options)
    change_config(here, "short", rounds=6)
    longer = fedquilt.resume("short", anyway=True)
    whole = fedquilt.run("fedavg", here / "mine.npz", **options | {"rounds": 6})
    assert without_seconds(longer.records[0]) == without_seconds(whole.records[0])


def without_seals(folder: Path) -> None:
    """A run folder as an earlier version left it."""
    for path in folder.rglob("seal.json"):
        path.unlink()
    config = json.loads((folder / "config.json").read_text())
    del config["versions"]["seal"]
    (folder / "config.json").write_text(json.dumps(config))


def test_a_run_of_an_earlier_version_is_read_and_goes_on_where_the_user_insists(here: Path) -> None:
    without_seals(here / "whole")
    assert fedquilt.load_run("whole").result == fedquilt.resume("whole").result
    without_seals(here / "run")
    assert "an earlier fedquilt began it, which sealed nothing" in refused()
    fedquilt.resume("run", anyway=True)
    assert outcome(here / "run")[0] == outcome(here / "whole")[0]
    assert RunFolder.open(here / "run").seal is not None


def test_a_run_of_an_earlier_version_is_refused_on_a_graph_of_another_size(here: Path) -> None:
    without_seals(here / "run")
    graph = own_graph()
    write_npz(replace(graph, x=np.hstack([graph.x, graph.x[:, :1]])), here / "mine.npz")
    assert "the graph changed since it began: it has 4 features, not 3" in refused(anyway=True)


def test_a_seal_that_is_gone_is_not_forgotten(here: Path) -> None:
    (here / "run" / "seal.json").unlink()
    assert "seal.json is gone" in refused(anyway=True)


# -- what a finished seed left ----------------------------------------------------------------------------------------


def one_digit(path: Path) -> None:
    """Change the first digit of the test metric."""
    before, found, after = path.read_text().partition('"test": ')
    if not found:
        before, found, after = path.read_text().partition('"test":')
    digit = "9" if after[0] != "9" else "8"
    path.write_text(before + found + digit + after[1:])


@pytest.mark.parametrize("sealed", [True, False])
def test_one_digit_of_a_summary_does_not_reach_the_result(here: Path, sealed: bool, call: Callable) -> None:
    if not sealed:
        without_seals(here / "whole")
    summary, result = here / "whole" / "seed-1" / "summary.json", here / "whole" / "result.json"
    one_digit(summary)
    before = result.read_bytes()
    for command in ("resume whole", "show whole", "report whole"):
        called = call(command)
        assert called.status == 2
        assert "whole/seed-1/summary.json was changed: its test is " in called.sentence
        assert "delete whole/seed-1 and train the seed again with 'fedquilt resume whole'" in called.sentence
    assert result.read_bytes() == before
    shutil.rmtree(here / "whole" / "seed-1")
    assert call("resume whole -q" if sealed else "resume whole -q --anyway").status == 0
    assert without_seconds(json.loads(result.read_text())) == without_seconds(json.loads(before))


def test_other_entries_of_a_summary_are_sealed_too(here: Path) -> None:
    path = here / "whole" / "seed-0" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 0.001}))
    for read in (fedquilt.load_run, fedquilt.resume):
        with pytest.raises(FedquiltError, match=r"summary\.json was changed since the seed ended"):
            read("whole")


@pytest.mark.parametrize("command", ["resume whole", "show whole", "report whole"])
def test_metrics_that_were_changed_are_named(here: Path, command: str, call: Callable) -> None:
    one_digit(here / "whole" / "seed-0" / "metrics.jsonl")
    called = call(command)
    assert called.status == 2
    assert "whole/seed-0/metrics.jsonl was changed since the seed ended" in called.sentence


def test_a_result_that_was_changed_is_named(here: Path) -> None:
    path = here / "whole" / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"test_mean": result["test_mean"] + 10}))
    for read in (fedquilt.load_run, fedquilt.resume):
        with pytest.raises(
            FedquiltError, match=r"result\.json was changed: its test_mean is .* delete it and resume the run"
        ):
            read("whole")
    path.unlink()
    assert without_seconds(fedquilt.resume("whole").result) == without_seconds(result)
    assert fedquilt.load_run("whole").result == result


def test_metrics_of_a_run_that_trains_are_sealed_by_its_checkpoint(here: Path) -> None:
    path = here / "run" / "seed-1" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0].replace('"val":', '"val":1'), *lines[1:]]))
    assert "its records up to round 2 are not those that the checkpoint of that round sealed" in refused()
    path.write_text("".join(lines[:-1]))  # lost, as a power failure could if they were not synced first
    assert "its records up to round 2 are not those" in refused()


def test_show_names_a_config_that_was_changed(here: Path, call: Callable) -> None:
    change_config(here, "whole", method="quilt")
    for command in ("show whole", "report whole"):
        assert (
            'config.json was changed since the run began: method was "fedavg" and is now "quilt"'
            in call(command).sentence
        )
    with pytest.raises(FedquiltError, match=r"config\.json was changed since the run began"):
        fedquilt.load_run("whole")
    change_config(here, "run", rounds=6, seeds=[0, 1, 2])
    assert call("show run").status == 2  # seed 0 was finished with four rounds
    change_config(here, "run", rounds=4)
    assert call("show run").status == 0


def test_leftover_temporary_files_are_swept(here: Path) -> None:
    left = [here / "run" / place / ".x.json.77-0123abcd.tmp" for place in ("", "seed-1", "seed-1/checkpoints")]
    for path in left:
        path.touch()
    fedquilt.resume("run")
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("edge_noise", [0.0, 0.3])
@pytest.mark.parametrize("partition", ["disjoint", "overlapping", "louvain"])
def test_a_graph_that_was_given_as_an_object_is_the_one_in_its_file(
    tmp_path: Path, partition: str, edge_noise: float
) -> None:
    """Its edges may come in any order, and are sorted in the file."""
    graph = own_graph()
    graph = replace(graph, edges=graph.edges[:, np.random.default_rng(1).permutation(graph.edges.shape[1])])
    options = SMALL | {"partition": partition, "clients": 2, "edge_noise": edge_noise}
    if partition == "overlapping":
        options["clients"] = 10
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", graph, out=tmp_path / "run", watch=stop_after(0, 1), **options)
    fedquilt.resume(tmp_path / "run")
