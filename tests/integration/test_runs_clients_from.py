"""A run on clients' own graphs: on the command line, resumed, from its config.json, in a comparison, and by a client column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.npz import write_npz
from fedquilt.studies.digests import _digest_or_error
from fedquilt.studies.plan import plan_study
from fedquilt.tuning.search import tune
from support.command_line import Call
from support.hospitals import CLASSES, WARDS, write_hospital, write_hospitals
from support.small_runs import own_graph, stop_after
from support.tiny_studies import write_study

SHORT_LINE = "-m fedavg -r 2 --set hidden=8 --device cpu"
SHORT: dict[str, Any] = {"rounds": 2, "device": "cpu", "settings": {"hidden": 8}}


@pytest.fixture
def hospitals(here: Path) -> Path:
    write_hospitals(here)
    return here


def test_a_run_and_a_comparison_on_the_command_line(hospitals: Path, call: Call) -> None:
    done = call(f"run {SHORT_LINE} --clients-from hospital-*/ --out out --quiet")
    assert done.status == 0, done.err
    config = json.loads(Path("out/config.json").read_text())
    assert config["clients_from"] == [str(hospitals / name) for name in WARDS]
    assert (config["dataset"], config["partition"], config["clients"], config["split"]) == (
        "@clients",
        "natural",
        3,
        "own",
    )
    assert config["resolved"]["client_names"] == list(WARDS)
    first = json.loads(Path("out/result.json").read_text())
    assert (first["dataset"], first["clients"], first["seeds"][0]["client_names"]) == ("hospital", 3, list(WARDS))
    # A run of its config.json, or of the clients one by one, is the same run.
    for out, said in (
        ("again", "--config out/config.json"),
        ("listed", f"{SHORT_LINE} --clients-from hospital-b,hospital-a --clients-from hospital-c"),
    ):
        again = call(f"run {said} --out {out} --quiet")
        assert again.status == 0, again.err
        assert json.loads(Path(out, "result.json").read_text())["test_mean"] == first["test_mean"]
    compared = call(
        "compare -m local,fedavg --clients-from hospital-*/ -r 2 --set hidden=8 --device cpu --out both --quiet"
    )
    assert compared.status == 0, compared.err
    assert json.loads(Path("both/fedavg/result.json").read_text())["test_mean"] == first["test_mean"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--clients-from hospital-* --partition disjoint", "partition='disjoint' does not go with clients_from"),
        ("--clients-from hospital-* --clients 3", "clients=3 does not go with clients_from"),
        ("--clients-from hospital-* --dataset cora", "dataset='cora' does not go with clients_from"),
        ("--clients-from clinic-*", "Nothing matches 'clinic-*'"),
        ("--clients-from hospital-a hospital-b", "a pattern after --clients-from, such as"),
    ],
)
def test_what_does_not_go_together_is_said_and_nothing_is_written(
    options: str,
    says: str,
    hospitals: Path,
    call: Call,
) -> None:
    refused = call(f"run -m fedavg {options}")
    assert refused.status == 2
    assert says in refused.sentence
    assert not Path("runs").exists()


def test_a_replaced_client_is_refused_by_name(hospitals: Path) -> None:
    out = hospitals / "out"
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", ["hospital-*"], out=out, watch=stop_after(0, 0), **SHORT)
    kept = (hospitals / "hospital-b" / "nodes.csv").read_text()
    write_hospital(hospitals / "hospital-b", WARDS["hospital-b"], seed=9)
    with pytest.raises(
        FedquiltError, match="the clients changed since it began: 'hospital-b' has other data; put back"
    ):
        fedquilt.resume(out)
    (hospitals / "hospital-b" / "nodes.csv").write_text("no table\n")
    with pytest.raises(FedquiltError, match="Client 'hospital-b'"):
        fedquilt.resume(out)
    write_hospital(hospitals / "hospital-b", WARDS["hospital-b"], seed=1)
    assert (hospitals / "hospital-b" / "nodes.csv").read_text() == kept
    # A client that comes later is none of this run's.
    write_hospital(hospitals / "hospital-d", CLASSES, seed=7)
    done = fedquilt.resume(out)
    assert done.client_names() == list(WARDS)
    assert (
        done.result["test_mean"] == fedquilt.run("fedavg", [hospitals / n for n in WARDS], **SHORT).result["test_mean"]
    )


def test_graphs_in_memory_are_kept_in_the_run_folder(tmp_path: Path) -> None:
    named = {"south": own_graph(60), "north": own_graph(40, masks=True)}
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", named, out=tmp_path / "run", watch=stop_after(0, 0), **SHORT)
    assert fedquilt.resume(tmp_path / "run").client_names() == ["south", "north"]
    whole = fedquilt.run("fedavg", named, **SHORT)
    assert fedquilt.load_run(tmp_path / "run").result["test_mean"] == whole.result["test_mean"]
    data = [graph.to_data() for graph in named.values()]
    unnamed = fedquilt.run("fedavg", data, **SHORT)
    assert unnamed.client_names() == ["client 0", "client 1"]
    assert unnamed.result["test_mean"] == whole.result["test_mean"]
    both = fedquilt.compare(["local", "fedavg"], named, **SHORT)
    assert both[1].result["test_mean"] == whole.result["test_mean"]


def test_a_client_column_is_the_same_as_a_folder_for_each(tmp_path: Path) -> None:
    names = ("north", "south")
    folders = [write_hospital(tmp_path / name, CLASSES, seed=2 * seed) for seed, name in enumerate(names)]
    apart = fedquilt.run("fedavg", folders, **SHORT)
    rows, edges = (
        ["id,label,age,bmi,lab,client"],
        ["source,target", "north-p0,south-p0"],
    )  # an edge between two is dropped
    for folder in folders:
        rows += [f"{folder.name}-{line},{folder.name}" for line in (folder / "nodes.csv").read_text().splitlines()[1:]]
        pairs = [line.split(",") for line in (folder / "edges.csv").read_text().splitlines()[1:]]
        edges += [f"{folder.name}-{u},{folder.name}-{v}" for u, v in pairs]
    one = tmp_path / "one"
    one.mkdir()
    (one / "nodes.csv").write_text("\n".join(rows) + "\n")
    (one / "edges.csv").write_text("\n".join(edges) + "\n")
    together = fedquilt.run("fedavg", one, **SHORT)
    assert together.client_names() == list(names)
    assert together.result["test_mean"] == pytest.approx(apart.result["test_mean"], abs=1e-4)
    write_npz(load_graph(one)[0], tmp_path / "one.npz")
    assert fedquilt.run("fedavg", tmp_path / "one.npz", **SHORT).result["test_mean"] == together.result["test_mean"]
    # Another partition, where one is asked for, cuts the whole graph.
    cut = fedquilt.run("fedavg", one, partition="random", clients=4, **SHORT)
    assert cut.client_names() == [f"client {m}" for m in range(4)]
    with pytest.raises(FedquiltError, match="There are 2 clients, not 4; leave out the number of clients"):
        fedquilt.run("fedavg", one, clients=4, **SHORT)


def test_names_follow_the_clients_that_train(hospitals: Path) -> None:
    seeds = [0, 1, 2, 3]
    done = fedquilt.run("fedsheafhn", ["hospital-*"], hold_out_clients=0.34, seeds=seeds, **SHORT | {"rounds": 1})
    trained = {tuple(done.client_names(seed)) for seed in seeds}
    assert all(len(names) == 2 and set(names) < set(WARDS) for names in trained)
    assert len(trained) > 1


def test_tuning_and_a_study_take_clients(hospitals: Path) -> None:
    found = tune(
        "fedavg", ["hospital-*"], trials=2, rounds=1, device="cpu", space={"lr": [0.01, 0.02]}, settings={"hidden": 8}
    )
    assert len(found.trials) == 2
    data = [{"label": "all", "clients_from": ["hospital-*"]}, {"label": "absent", "clients_from": ["clinic-*"]}]
    axes = {"method": ["local", "fedavg"], "data": data}
    plan = plan_study(write_study(hospitals, options={"rounds": 1}, axes=axes, columns=["data"]))
    cells, missing = plan.available()
    assert (len(cells), len(missing)) == (2 * 2, 2)  # two methods, for two seeds
    assert "the clients' graphs cannot be had here (Nothing matches 'clinic-*'" in missing[0].why
    key = cells[0].key
    write_hospital(hospitals / "hospital-a", CLASSES, seed=8)
    _digest_or_error.cache_clear()
    assert cells[0].key != key


def test_predictions_and_classes_of_a_client_by_its_name(hospitals: Path, call: Call) -> None:
    done = fedquilt.run("fedavg", ["hospital-*"], out="out", **SHORT)
    own = done.predict()
    assert dict.fromkeys(own.clients.tolist()) == dict.fromkeys(WARDS)
    assert own.ids[:2].tolist() == ["p0", "p1"]
    for whose in ("hospital-b", 1):
        assert set(done.predict(client=whose).clients.tolist()) == {"hospital-b"}
    called = call("predict out --client hospital-c --nodes hospital-a --out new.csv")
    assert "Predicted 40 nodes with the model of client hospital-c in 4 classes" in called.out, called.err
    assert call("predict out --client clinic").sentence.startswith(
        "There is no client 'clinic'; choose one of hospital-a, hospital-b, hospital-c or their numbers 0 to 2"
    )
    for whose in ("hospital-b", "1"):
        shown = call(f"show out --client {whose}")
        assert "hospital-b, 1 seed" in shown.out, shown.err
    refused = call("show out --client clinic").sentence
    assert refused == "The run has no client clinic; choose one of: hospital-a, hospital-b, hospital-c."
