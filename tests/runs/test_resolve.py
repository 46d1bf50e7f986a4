"""A run resolved: its cuts and splits, its clients, and what is filled in where the user says nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedquilt
from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.preparation import Preparation
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.split import TEST, TRAIN, Folds, draw_split
from fedquilt.partition import source
from fedquilt.partition.make import make_partition
from fedquilt.partition.partition import Partition
from fedquilt.partition.storage import save
from fedquilt.partition.training_nodes import training_nodes
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import GIVEN, REDRAWS, ResolvedRun
from fedquilt.scenarios.edge_noise import with_edge_noise
from fedquilt.training.attendance import Conditions
from support.small_runs import SMALL, own_graph
from support.thoroughness import EPOCHS, NAME, thorough

pytestmark = pytest.mark.usefixtures("elsewhere")


def experiment(given: Graph | None = None, **options: Any) -> ResolvedRun:
    values = {"dataset": GIVEN} if given is not None else {}
    config = RunConfig.build({"method": "fedavg", **values, **SMALL, **options})
    return ResolvedRun(config, None if given is None else (given, Protocol()))


def test_min_train_draws_the_split_again_until_everyone_has_enough() -> None:
    graph = own_graph(60)
    again = 0
    for seed in range(6):
        plain, wanting = experiment(graph, clients=5, min_train=None), experiment(graph, clients=5, min_train=2)
        partition, split = wanting.cut(seed)
        assert training_nodes(partition, split).min() >= 2
        draws = [draw_split(wanting.graph, (0.2, 0.4, 0.4), seed, attempt) for attempt in range(REDRAWS)]
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
    counts = training_nodes(partition, draw_split(graph, (0.2, 0.4, 0.4), 0, REDRAWS - 1))
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
    assert mine.context(0).partition == "overlapping"
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


def test_the_built_in_graphs_own_clients_always_have_a_training_node() -> None:
    run = fedquilt.run("majority", "communities-3", partition="natural")
    assert run.result["clients"] == 20


def test_where_communities_are_found_each_seed_counts_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(graph: Graph, kind: str, clients: int | None, seed: int, **options: Any) -> Partition:
        return make_partition(graph, "random", 3 + seed, seed)

    monkeypatch.setattr(source, "make_partition", found)
    run = fedquilt.run("fedpub", partition="louvain-50", seeds=[0, 2], **SMALL)
    assert [len(run.records[seed][0]["clients"]["val"]) for seed in (0, 2)] == [3, 5]
    assert run.similarities[2][-1].shape == (5, 5)


def test_the_protocol_fills_what_is_left_open() -> None:
    mine = experiment(dataset="communities-3", partition="natural", rounds=None, clients=None, min_train=1)
    assert (mine.config.rounds, mine.config.epochs, mine.config.metric) == (100, 3, "accuracy")
    assert mine.settings.epochs == 3
    assert mine.config.clients == 20
    assert experiment(dataset="communities-3", epochs=2).settings.epochs == 2


@pytest.mark.parametrize(
    ("options", "used"),
    [({}, EPOCHS), ({"epochs": 5}, 5), ({"settings": {"epochs": 7}}, 7), ({"epochs": 7, "settings": {"epochs": 7}}, 7)],
    ids=str,
)
def test_the_config_holds_the_epochs_that_are_used(options: dict[str, Any], used: int) -> None:
    with thorough():
        mine = experiment(method=NAME, **options)
        again = ResolvedRun(mine.config)
    for one in (mine, again):
        assert one.config.epochs == one.settings.epochs == one.context(0).epochs == used
    assert again.settings == mine.settings
    assert again.config == mine.config
    assert mine.config.settings == options.get("settings", SMALL["settings"])  # as the user gave them


def test_a_method_without_epochs_keeps_the_datasets_or_the_users() -> None:
    assert experiment(method="majority", dataset="communities-3", settings={}).config.epochs == 3
    assert experiment(method="majority", dataset="communities-3", settings={}, epochs=2).config.epochs == 2


def test_epochs_told_twice_must_agree() -> None:
    with pytest.raises(FedquiltError, match="Local epochs are given twice, as epochs=5 and as the setting epochs=7"):
        experiment(epochs=5, settings={"epochs": 7})


def test_a_federation_of_homophily_levels_is_cut_into_its_graphs(data_folder: Path) -> None:
    name = "syn-cora:h=all"
    mine = experiment(dataset=name, partition="natural", data=str(data_folder), method="majority", settings={})
    assert (mine.config.clients, mine.label) == (11, name)
    clients = mine.clients(0)
    shares = [np.diff(client.graph.y[client.graph.edges], axis=0) == 0 for client in clients]
    assert [share.mean() for share in shares] == pytest.approx(np.arange(11) / 10, abs=0.015)
    assert all(client.graph.sparse for client in clients)


def copied(**changes: Any) -> Graph:
    """Thirty hubs on a ring, each with six leaves, which have the same neighbours."""
    hub = np.arange(30).repeat(6)
    edges = np.concatenate([[np.arange(30), (np.arange(30) + 1) % 30], [30 + np.arange(180), hub]], axis=1)
    y = np.concatenate([np.arange(30) % 3, hub % 3])
    rng = np.random.default_rng(0)
    return Graph.from_arrays("copied", edges, rng.normal(size=(210, 4)), y, **changes)


def separated(run: ResolvedRun) -> int:
    """How many hubs have leaves in several parts of the split."""
    parts = run.cut(0)[1][30:].reshape(30, 6)
    return int((parts.min(axis=1) != parts.max(axis=1)).sum())


@pytest.mark.parametrize("split", ["40/30/30", "5fold"])
def test_copies_are_kept_together_where_a_run_asks_for_it(split: str) -> None:
    assert separated(experiment(copied(), split=split)) > 15
    assert experiment(copied(), split=split).config.keep_copies is None
    for kind in ("neighbours", "both"):
        assert separated(experiment(copied(), split=split, keep_copies=kind)) == 0
    assert separated(experiment(copied(), split=split, keep_copies="features")) > 15
    # a graph that marks its copies
    marked = replace(copied(), copies=np.concatenate([np.arange(30), 30 + np.arange(30).repeat(6)]))
    assert separated(experiment(marked, split=split)) == 0
    assert separated(experiment(marked, split=split, keep_copies="never")) > 15


def test_a_given_split_stays_as_it_is() -> None:
    part = np.arange(210) % 3
    masks = {name: part == number for number, name in enumerate(("train", "val", "test"))}
    run = experiment(copied(masks=masks), split="given", keep_copies="neighbours")
    assert np.array_equal(run.cut(0)[1], part)


@pytest.mark.parametrize(("name", "kept"), [("squirrel", "neighbours"), ("cora", None)])
def test_a_dataset_that_is_known_to_have_copies_keeps_them_together(
    tmp_path: Path, name: str, kept: str | None
) -> None:
    write_npz(copied(), tmp_path / f"{name}.npz")
    run = experiment(dataset=name, data=str(tmp_path))
    assert run.config.keep_copies == kept
    assert (separated(run) == 0) == (kept is not None)
    apart = experiment(dataset=name, data=str(tmp_path), keep_copies="never")
    assert apart.config.keep_copies == "never"
    assert separated(apart) > 15
    # the resolved configuration is the same run
    assert np.array_equal(ResolvedRun(run.config).cut(0)[1], run.cut(0)[1])
    assert np.array_equal(ResolvedRun(apart.config).cut(0)[1], apart.cut(0)[1])


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
    draws = [Folds(5).draw(graph, 0, attempt) for attempt in range(REDRAWS)]
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


def test_conditions_are_the_same_for_every_method_and_stay_with_the_run() -> None:
    options = {"join_late": 0.3, "leave": 0.3, "drop_out": 0.2, "rounds": 8}
    runs = [experiment(**options, method=method) for method in ("fedavg", "fedpub")]
    one, two = (run.attendance(run.method_of(run.config)) for run in runs)
    assert (runs[0].config.join_round, runs[0].config.leave_round) == (4, 4)  # as config.json will say
    assert all(one.at(r).arrived.tolist() == two.at(r).arrived.tolist() for r in range(8))
    assert runs[0].training(0).plan.conditions == runs[1].training(0).plan.conditions != Conditions()
    later = experiment(**options | {"join_round": 3, "leave_round": 7})
    assert (later.conditions().join_round, later.conditions().leave_round) == (3, 7)
    assert experiment(**options, method="majority", settings={}).conditions() == Conditions()  # it has one round
    assert experiment().conditions() == Conditions()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"join_late": 0.3, "join_round": 3, "rounds": 3}, "join_round=3 is after the end of a run of 3 rounds"),
        ({"leave": 0.3, "rounds": 1}, "leave_round=1 is after the end of a run of 1 rounds"),
        ({"join_late": 0.6, "leave": 0.6, "rounds": 4, "clients": 2}, "too few for some to join late or leave"),
        ({"drop_out": 0.3, "method": "centralised"}, "leave out drop_out, since all clients train as one"),
    ],
)
def test_conditions_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError, match=says):
        experiment(**options)


def test_a_lost_upload_counts_in_a_privacy_budget() -> None:
    """It has left the client, and somebody may have read it."""
    pytest.importorskip("dp_accounting")
    options = {"dp_clip": 1.0, "dp_noise": 1.0, "rounds": 4}
    spent = [
        run.protection(run.method_of(run.config)).uploads
        for run in (experiment(**options), experiment(**options, drop_out=0.5))
    ]
    assert spent[0] == spent[1]


def test_noise_on_features_and_labels_is_each_clients_own_and_the_same_for_every_method() -> None:
    graph, options = own_graph(), {"feature_noise": 0.3, "label_noise": 0.5}
    plain, noisy = experiment(graph), experiment(graph, **options)
    other = experiment(graph, **options, method="fedpub", cohort_size=1)
    for mine, same, clean in zip(*(e.clients(0) for e in (noisy, other, plain)), strict=True):
        assert np.array_equal(mine.graph.x, same.graph.x)
        assert np.array_equal(mine.graph.y, same.graph.y)
        assert not np.array_equal(mine.graph.x, clean.graph.x)
        assert np.array_equal(mine.graph.edges, clean.graph.edges)
        trains = mine.split == TRAIN
        assert not np.array_equal(mine.graph.y[trains], clean.graph.y[trains])
        assert np.array_equal(mine.graph.y[~trains], clean.graph.y[~trains])
    assert not np.array_equal(noisy.clients(0)[0].graph.x, noisy.clients(1)[0].graph.x)
    # Features are prepared by statistics of what clients have.
    standard = experiment(graph, **options, prepare="standard")
    raw = standard.raw_clients(0)[1].graph.x
    assert np.array_equal(standard.preparations(0)[1].apply(raw), Preparation.of(raw, "standard").apply(raw))


def test_label_noise_is_refused_where_it_makes_no_sense() -> None:
    with pytest.raises(
        FedquiltError, match="The task node-regression has no classes that labels could be mistaken for"
    ):
        experiment(own_graph(), task="node-regression", label_noise=0.2, method="fedavg")
    with pytest.raises(FedquiltError, match="There is one class only"):
        experiment(own_graph(classes=1), label_noise=0.2)
    with pytest.raises(FedquiltError, match="there is no noise on labels; say how much"):
        experiment(own_graph(), label_noise_kind="pair")
