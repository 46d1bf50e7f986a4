"""fedquilt from Python: run, compare, resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import fedquilt
from federations import assert_same, without_seconds
from fedquilt import api
from fedquilt.errors import FedquiltError
from fedquilt.graphs import TEST, Graph, Protocol, draw_split, write_npz
from fedquilt.graphs.noise import with_edge_noise
from fedquilt.graphs.split import Folds
from fedquilt.methods.contract import Method, State
from fedquilt.methods.fedavg import FedAvg
from fedquilt.partition import Partition, make_partition, save
from fedquilt.partition.clients import training_nodes
from fedquilt.randomness import numpy_stream
from fedquilt.runs.config import RunConfig
from support import random_edges

SMALL: dict[str, Any] = {"clients": 3, "rounds": 3, "device": "cpu", "settings": {"hidden": 8}}
RESULT = [
    *("method", "dataset", "partition", "clients", "rounds"),
    *("metric", "test_mean", "test_std", "val_mean", "seeds"),
]
SEED = [
    *("seed", "best_round", "val", "test", "seconds", "seconds_per_round"),
    *("upload_bytes", "download_bytes"),
]


@pytest.fixture(autouse=True)
def _no_real_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "graphs"))


def own_graph(nodes: int = 90, classes: int = 3, masks: bool = False) -> Graph:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, nodes)
    x = (np.eye(classes)[y] * 2 + rng.standard_normal((nodes, classes))).astype(np.float32)
    parts = np.arange(nodes) % 3
    given = {part: parts == code for code, part in enumerate(("train", "val", "test"))} if masks else None
    return Graph("mine", random_edges(rng, nodes, 0.1), x, y, classes, masks=given)


def experiment(given: Graph | None = None, **options: Any) -> api.Experiment:
    values = {"dataset": api.GIVEN} if given is not None else {}
    config = RunConfig.build({"method": "fedavg", **values, **SMALL, **options})
    return api.Experiment(config, None if given is None else (given, Protocol()))


def stop_after(seed: int, round: int) -> Callable:
    """A watcher that presses Ctrl-C."""

    def watch(config: RunConfig, now: int, rounds: int) -> Callable:
        def on_round(record: dict[str, Any]) -> None:
            if (now, record["round"]) == (seed, round):
                raise KeyboardInterrupt

        return on_round

    return watch


# -- run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["data", "graph", "file", "path", "name"])
def test_run_takes_any_graph(kind: str, tmp_path: Path) -> None:
    graph = own_graph()
    write_npz(graph, "mine.npz")
    both = torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1))
    source = {
        "data": Data(x=torch.from_numpy(graph.x), edge_index=both, y=torch.from_numpy(graph.y)),
        "graph": graph,
        "file": "mine.npz",
        "path": tmp_path / "mine.npz",
        "name": "patchwork",
    }[kind]
    run = fedquilt.run("fedavg", source, seeds=[0, 1], **SMALL)
    assert run.folder is None
    assert run.result["dataset"] == {"data": "graph", "name": "patchwork"}.get(kind, "mine")
    assert list(run.records) == list(run.models) == [0, 1]
    features = 200 if kind == "name" else 3
    assert run.models[0]["conv1.weight"].shape == (3, features, 8)
    if kind != "name":  # the same graph, whatever it came as
        expected = fedquilt.run("fedavg", graph, seeds=[0, 1], **SMALL)
        assert_same(run.models[1], expected.models[1])
    assert not list(tmp_path.glob("runs"))


def test_the_result_is_as_documented() -> None:
    run = fedquilt.run("fedpub", seeds=[3, 4], **SMALL)
    result = run.result
    assert list(result) == RESULT
    assert [list(line) for line in result["seeds"]] == [SEED, SEED]
    assert {key: result[key] for key in RESULT[:6]} == {
        "method": "fedpub",
        "dataset": "patchwork",
        "partition": "disjoint",
        "clients": 3,
        "rounds": 3,
        "metric": "accuracy",
    }
    for seed, line in zip((3, 4), result["seeds"], strict=True):
        records = run.records[seed]
        best = max(records, key=lambda record: record["val"])
        assert line["seed"] == seed
        assert (line["best_round"], line["val"], line["test"]) == (best["round"], best["val"], best["test"])
        assert line["upload_bytes"] == sum(sum(r["bytes_up"].values()) for r in records)
        assert line["download_bytes"] == sum(sum(r["bytes_down"].values()) for r in records)
        assert line["seconds"] == pytest.approx(sum(r["seconds"] for r in records))
        assert line["seconds_per_round"] == pytest.approx(line["seconds"] / 3)
        assert set(run.similarities[seed]) == {-1, 0}
    tests = [line["test"] for line in result["seeds"]]
    assert result["test_mean"] == pytest.approx(np.mean(tests))
    assert result["test_std"] == pytest.approx(np.std(tests))
    assert result["val_mean"] == pytest.approx(np.mean([line["val"] for line in result["seeds"]]))
    assert repr(run) == (
        f"<Run fedpub on patchwork, 3 clients: test accuracy {result['test_mean']:.2f} ± {result['test_std']:.2f}>"
    )
    json.dumps(result, allow_nan=False)


def test_the_folder_holds_what_the_run_returns(tmp_path: Path) -> None:
    run = fedquilt.run("fedpub", out="out", seeds=[0], **SMALL)
    assert run.folder == Path("out")
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == run.result
    again = fedquilt.resume("out")
    assert again.result == run.result
    assert again.records == json.loads(
        json.dumps(run.records), object_hook=lambda d: {int(k) if k.isdigit() else k: v for k, v in d.items()}
    )
    assert_same(again.models[0], run.models[0])
    assert again.similarities[0].keys() == run.similarities[0].keys()
    assert all(np.array_equal(again.similarities[0][r], s) for r, s in run.similarities[0].items())
    assert fedquilt.run("fedpub", seeds=[0], **SMALL).result["test_mean"] == run.result["test_mean"]
    with pytest.raises(FedquiltError, match="out already holds a run"):
        fedquilt.run("fedpub", out="out", **SMALL)


def test_findings_are_kept_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def findings(self: Method, server: State, clients: State) -> State:
        asked.append(self.task.seed)
        return {"seed": torch.full((3,), self.task.seed), "bias": clients["model.classifier.bias"]}

    monkeypatch.setattr(FedAvg, "findings", findings)
    run = fedquilt.run("fedavg", out="out", seeds=[0, 4], **SMALL)
    assert asked == [0, 4]
    assert run.findings[4]["seed"].tolist() == [4, 4, 4]
    assert run.findings[4]["bias"].shape[0] == 3
    again = fedquilt.resume("out")
    assert asked == [0, 4]  # read, not computed again
    for seed in (0, 4):
        assert again.findings[seed].keys() == run.findings[seed].keys()
        assert all(np.array_equal(again.findings[seed][name], array) for name, array in run.findings[seed].items())
    assert fedquilt.run("fedavg", **SMALL).findings[0].keys() == run.findings[0].keys()
    other = fedquilt.run("local", out="local", **SMALL)
    assert other.findings == fedquilt.resume("local").findings == {0: {}}
    assert not (tmp_path / "local" / "seed-0" / "findings.npz").exists()


def test_a_run_without_a_test_metric_can_be_shown() -> None:
    """AUC is undefined where the test nodes are of one class."""
    graph = own_graph(classes=2, masks=True)
    assert graph.masks is not None
    graph.y[graph.masks["test"]] = 1
    run = fedquilt.run("fedavg", graph, metric="auc", **SMALL)
    assert run.result["test_mean"] is None
    assert run.result["test_std"] is None
    assert run.result["seeds"][0]["test"] is None
    assert "no test auc" in repr(run)


def test_the_watcher_sees_each_seed_and_round() -> None:
    seen: list[tuple] = []

    def watch(config: RunConfig, seed: int, rounds: int) -> Callable:
        seen.append((config.method, seed, rounds))
        return lambda record: seen.append((seed, record["round"]))

    fedquilt.run("local", seeds=[5, 6], watch=watch, **SMALL)
    assert seen == [("local", 5, 3), *((5, r) for r in range(3)), ("local", 6, 3), *((6, r) for r in range(3))]
    seen.clear()
    fedquilt.run("majority", watch=watch, clients=3)
    assert seen == [("majority", 0, 1), (0, 0)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"client": 3}, "There is no option 'client'; did you mean 'clients'?"),
        ({"rounds": 0}, "The option rounds=0 is not possible"),
        ({"participation": 0}, "The option participation=0 is not possible"),
        ({"seeds": []}, "The option seeds=[] is not possible"),
        ({"seeds": [1, 1]}, "a seed is listed twice"),
        ({"settings": {"hiden": 3}}, "There is no setting of fedavg 'hiden'; did you mean 'hidden'?"),
        ({"method": "fedavgg"}, "There is no method 'fedavgg'; did you mean 'fedavg'?"),
        ({"dataset": "patchwrk"}, "There is no dataset 'patchwrk'; did you mean 'patchwork'?"),
        ({"dataset": 3}, "A int is not a graph"),
        ({"metric": "f1"}, "There is no metric 'f1'"),
        ({"metric": "auc"}, "auc needs two classes"),
        ({"split": "given"}, "patchwork has no given split"),
        ({"split": "2fold"}, "The split '2fold' has too few folds"),
        ({"edge_noise": 1.5}, "The option edge_noise=1.5 is not possible"),
        ({"device": "tpu"}, "There is no device 'tpu'"),
        ({"clients": 9999}, "too few for 9999 clients"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_before_a_folder_is_made(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(FedquiltError) as caught:
        fedquilt.run(**({"method": "fedavg", "out": "out"} | SMALL | options))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


# -- compare -----------------------------------------------------------------------------------------


def test_compare_gives_each_setting_to_those_who_have_it(tmp_path: Path) -> None:
    settings = {"hidden": 8, "tau": 7.0, "mu": 0.5}
    runs = fedquilt.compare(["majority", "fedprox", "fedpub"], out="out", **(SMALL | {"settings": settings}))
    assert [run.result["method"] for run in runs] == ["majority", "fedprox", "fedpub"]
    kept = {}
    for method in ("majority", "fedprox", "fedpub"):
        config = json.loads((tmp_path / "out" / method / "config.json").read_text())
        kept[method] = config["settings"]
        assert config["resolved"]["graph"]["name"] == "patchwork"
    assert kept == {
        "majority": {},
        "fedprox": {"hidden": 8, "mu": 0.5},
        "fedpub": {"hidden": 8, "tau": 7.0},
    }


def test_compare_gives_what_single_runs_give_on_a_graph_of_ones_own() -> None:
    graph = own_graph()
    runs = fedquilt.compare(["local", "fedavg"], graph, **SMALL)
    for run in runs:
        alone = fedquilt.run(run.result["method"], graph, **SMALL)
        assert_same(alone.models[0], run.models[0])


@pytest.mark.parametrize(
    ("methods", "settings", "says"),
    [
        ([], {}, "Say which methods to compare"),
        (["local", "fedavg"], {"tua": 3}, "There is no setting of these methods 'tua'"),
        (["local", "fedpub"], {"tua": 3}, "did you mean 'tau'?"),
        (["majority"], {"lr": 1}, "None of these methods has settings"),
        (["local", "fedpub"], {"tau": -3}, "The setting tau=-3 of method 'fedpub' is not possible"),
        (["local", "fedpub"], {"model": "sage"}, "FED-PUB's functional embeddings"),
        (["local", "nobody"], {}, "There is no method 'nobody'"),
    ],
)
def test_what_is_wrong_with_any_method_is_said_first(
    methods: list[str], settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(FedquiltError) as caught:
        fedquilt.compare(methods, out="out", **(SMALL | {"settings": settings}))
    assert says in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_plan_leaves_everything_else_alike() -> None:
    plans = api.plan(["local", "fedpub"], {"rounds": 7, "settings": {"tau": 2}})
    assert [p.method for p in plans] == ["local", "fedpub"]
    assert [p.settings for p in plans] == [{}, {"tau": 2}]
    assert {p.rounds for p in plans} == {7}


# -- resume ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [True, False])
def test_resume_from_another_folder_gives_what_an_undisturbed_run_gives(
    given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = own_graph()
    write_npz(graph, "mine.npz")
    save(make_partition(graph, "random", 4, 1), "cut.npz")
    options = SMALL | {"partition": "cut.npz", "seeds": [0, 1], "participation": 0.6, "checkpoint_seconds": 0.0}
    source = graph if given else "mine.npz"
    whole = fedquilt.run("fedpub", source, out="whole", **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedpub", source, out="stopped", watch=stop_after(1, 1), **options)
    config = json.loads((tmp_path / "stopped" / "config.json").read_text())
    assert config["partition"] == str(tmp_path / "cut.npz")
    assert config["clients"] == 4
    assert config["dataset"] == (api.GIVEN if given else str(tmp_path / "mine.npz"))
    if given:  # the graph is in the folder, so nothing else is needed
        assert (tmp_path / "stopped" / api.GRAPH_FILE).is_file()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = fedquilt.resume(tmp_path / "stopped")
    for seed in (0, 1):
        assert without_seconds(resumed.records[seed]) == without_seconds(whole.records[seed])
        assert_same(resumed.models[seed], whole.models[seed])
        assert all(np.array_equal(s, whole.similarities[seed][r]) for r, s in resumed.similarities[seed].items())
    assert resumed.result["test_mean"] == whole.result["test_mean"]
    assert resumed.result["dataset"] == "mine"


def test_resume_of_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="There is no run folder at nowhere"):
        fedquilt.resume("nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FedquiltError, match="is not a run folder"):
        fedquilt.resume("empty")


# -- cuts and splits ---------------------------------------------------------------------------------


def test_min_train_draws_the_split_again_until_everyone_has_enough() -> None:
    graph = own_graph(60)
    again = 0
    for seed in range(6):
        plain, wanting = experiment(graph, clients=5, min_train=None), experiment(graph, clients=5, min_train=2)
        partition, split = wanting.cut(seed)
        assert training_nodes(partition, split).min() >= 2
        draws = [draw_split(wanting.graph, (0.2, 0.4, 0.4), seed, attempt) for attempt in range(api.REDRAWS)]
        first = next(i for i, drawn in enumerate(draws) if training_nodes(partition, drawn).min() >= 2)
        assert np.array_equal(split, draws[first])
        again += first > 0
        if training_nodes(partition, draws[0]).min() >= 1:
            assert np.array_equal(plain.cut(seed)[1], draws[0])
    assert again


def test_too_few_training_nodes_name_the_client() -> None:
    graph = own_graph(60)
    with pytest.raises(FedquiltError) as caught:
        experiment(graph, min_train=30)
    partition = make_partition(graph, "disjoint", 3, 0)
    counts = training_nodes(partition, draw_split(graph, (0.2, 0.4, 0.4), 0, api.REDRAWS - 1))
    assert f"Client 0 of 3 has {counts[0]} training nodes where 30 are wanted" in str(caught.value)
    masks = own_graph(60, masks=True)
    assert masks.masks is not None
    held = make_partition(masks, "disjoint", 3, 0).nodes[1]
    masks.masks["train"][held] = False
    with pytest.raises(FedquiltError, match="Client 1 of 3 has no training node"):
        experiment(masks)


def test_a_given_split_is_used_for_ones_own_graph_only(tmp_path: Path) -> None:
    graph = own_graph(masks=True)
    split = np.arange(90) % 3
    assert np.array_equal(experiment(graph).cut(5)[1], split)
    assert experiment(graph).config.split == "given"
    drawn = experiment(graph, split="30/30/40")
    assert np.array_equal(drawn.cut(5)[1], draw_split(graph, (0.3, 0.3, 0.4), 5))
    assert experiment(own_graph()).config.split == "20/40/40"
    # The same file as a graph of the catalogue is split anew for every seed, as the papers do, unless asked.
    write_npz(graph, tmp_path / "graphs" / "roman-empire.npz")
    named = experiment(dataset="roman-empire")
    assert named.config.split == "20/40/40"
    assert np.array_equal(named.cut(5)[1], draw_split(graph, (0.2, 0.4, 0.4), 5))
    assert np.array_equal(experiment(dataset="roman-empire", split="given").cut(5)[1], split)


def test_a_saved_partition_is_used_as_it_is() -> None:
    graph = own_graph()
    partition = make_partition(graph, "overlapping", 5, 2)
    save(partition, "cut.npz")
    mine = experiment(graph, partition="cut.npz", method="fedpub", clients=3)
    assert mine.config.clients == 5
    for seed in (0, 9):
        for held, expected in zip(mine.cut(seed)[0].nodes, partition.nodes, strict=True):
            assert np.array_equal(held, expected)
    assert mine.task(0).partition == "overlapping"
    assert mine.settings.tau == 5.0
    with pytest.raises(FedquiltError, match="The partition was made for graph 'mine' with 90 nodes"):
        experiment(own_graph(80), partition="cut.npz")
    with pytest.raises(FedquiltError, match="There is no partition file 'nothing"):
        experiment(graph, partition="nothing.npz")


def test_natural_clients_say_how_many() -> None:
    run = fedquilt.run("majority", partition="natural")
    assert run.result["clients"] == 10
    with pytest.raises(FedquiltError, match="has no natural clients"):
        experiment(own_graph(), partition="natural")


def test_where_communities_are_found_each_seed_counts_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(graph: Graph, kind: str, clients: int | None, seed: int, **options: Any) -> Partition:
        return make_partition(graph, "random", 3 + seed, seed)

    monkeypatch.setattr(api, "make_partition", found)
    run = fedquilt.run("fedpub", partition="louvain-50", seeds=[0, 2], **SMALL)
    assert [len(run.records[seed][0]["clients"]["val"]) for seed in (0, 2)] == [3, 5]
    assert run.similarities[2][-1].shape == (5, 5)


def test_the_protocol_fills_what_is_left_open() -> None:
    mine = experiment(dataset="communities-3", partition="natural", rounds=None, clients=None, min_train=1)
    assert (mine.config.rounds, mine.config.epochs, mine.config.metric) == (100, 3, "accuracy")
    assert mine.settings.epochs == 3
    assert mine.config.clients == 20
    assert experiment(dataset="communities-3", epochs=2).settings.epochs == 2


def test_every_seed_has_a_split_of_its_own_and_the_same_for_every_method() -> None:
    one, two = experiment(method="local"), experiment(method="fedpub")
    for seed in (0, 1):
        assert np.array_equal(one.cut(seed)[1], two.cut(seed)[1])
        for mine, other in zip(one.cut(seed)[0].nodes, two.cut(seed)[0].nodes, strict=True):
            assert np.array_equal(mine, other)
    assert not np.array_equal(one.cut(0)[1], one.cut(1)[1])


def test_folds_are_split_as_their_seed_says() -> None:
    graph = own_graph()
    five = experiment(graph, split="5fold", seeds=[0, 1, 2, 3, 4], min_train=1)
    splits = np.stack([five.cut(seed)[1] for seed in range(5)])
    assert ((splits == TEST).sum(axis=0) == 1).all()
    assert np.array_equal(splits[3], Folds(5).draw(graph, 3))
    assert five.config.split == "5fold"
    # With --min-train a grouping is drawn again as other splits are.
    again = experiment(graph, split="5fold", clients=9, min_train=5)
    partition, split = again.cut(0)
    draws = [Folds(5).draw(graph, 0, attempt) for attempt in range(api.REDRAWS)]
    first = next(i for i, drawn in enumerate(draws) if training_nodes(partition, drawn).min() >= 5)
    assert first > 0
    assert np.array_equal(split, draws[first])


def test_edge_noise_is_each_clients_own_and_the_same_for_every_method() -> None:
    graph = own_graph()
    plain, noisy = experiment(graph), experiment(graph, edge_noise=0.5)
    other = experiment(graph, edge_noise=0.5, method="fedpub", cohort_size=1)
    for seed in (0, 1):
        for mine, same, clean in zip(*(e.clients(seed) for e in (noisy, other, plain)), strict=True):
            assert np.array_equal(mine.graph.edges, same.graph.edges)
            assert mine.graph.edges.shape == clean.graph.edges.shape
            assert not np.array_equal(mine.graph.edges, clean.graph.edges)
            assert np.array_equal(mine.graph.x, clean.graph.x)
            assert np.array_equal(mine.split, clean.split)
            assert mine.id == clean.id
    assert not np.array_equal(noisy.clients(0)[0].graph.edges, noisy.clients(1)[0].graph.edges)
    # A client's noise depends on its number and the seed alone, not on who else is there.
    client = plain.clients(0)[2]
    alone = with_edge_noise(client.graph, 0.5, numpy_stream(0, "client", 2, "edge noise"))
    assert np.array_equal(noisy.clients(0)[2].graph.edges, alone.edges)


@pytest.mark.parametrize("options", [{"split": "5fold", "seeds": [6]}, {"edge_noise": 0.3}], ids=str)
def test_a_stopped_run_goes_on_with_the_same_cut(options: dict[str, Any]) -> None:
    options = SMALL | {"checkpoint_seconds": 0.0} | options
    seed = options.get("seeds", [0])[0]
    whole = fedquilt.run("fedavg", **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", out="stopped", watch=stop_after(seed, 1), **options)
    resumed = fedquilt.resume("stopped")
    assert without_seconds(resumed.records[seed]) == without_seconds(whole.records[seed])
    assert_same(resumed.models[seed], whole.models[seed])
    plain = fedquilt.run("fedavg", **SMALL | {"seeds": [seed]})
    assert without_seconds(plain.records[seed]) != without_seconds(whole.records[seed])


def test_a_cohort_size_does_not_change_the_result() -> None:
    whole, cut = (fedquilt.run("fedavg", own_graph(), **SMALL, cohort_size=size) for size in (None, 2))
    for name, w in whole.models[0].items():
        assert torch.allclose(w, cut.models[0][name], atol=1e-5)


def test_the_public_names_are_there() -> None:
    for name in fedquilt.__all__:
        assert getattr(fedquilt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fedquilt.nothing


def test_a_method_listed_twice_is_refused_before_anything_trains(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="listed twice"):
        fedquilt.compare(["local", "local"], "patchwork", out=tmp_path / "both", rounds=1)
    assert not (tmp_path / "both").exists()


def test_the_built_in_graphs_own_clients_always_have_a_training_node() -> None:
    run = fedquilt.run("majority", "communities-3", partition="natural")
    assert run.result["clients"] == 20
