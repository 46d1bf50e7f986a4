"""Clients that come after training: the exchange, a graph of one's own, and clients held out of a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.copies import with_copies
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.prepare import normalise
from fedquilt.graphs.split import Folds, parse_split
from fedquilt.messages.message import UndeclaredError
from fedquilt.methods import base
from fedquilt.methods.base import find_method
from fedquilt.runs.config import GRAPH_FILE, RunConfig
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.scenarios.newcomers import FrozenServer, check_admits
from fedquilt.tasks.node_classification import accuracy
from fedquilt.training.client_sampling import some_clients
from fedquilt.training.plan import Plan
from support.federations import assert_same, make_method, make_training, ragged_clients, without_seconds
from support.newcomers import NAME, Keeping, keeping
from support.small_runs import stop_after

SMALL: dict[str, Any] = {"clients": 5, "rounds": 3, "device": "cpu", "settings": {"hidden": 8}}
HELD = SMALL | {"hold_out_clients": 0.4}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with keeping():
        yield


def trained() -> tuple[FrozenServer, list[Client]]:
    """A server that trained with three of five clients, and the other two."""
    clients = ragged_clients()
    training = make_training(make_method(NAME, clients[:3]), clients[:3], Plan(3))
    training.run()
    lasting = training.method.newcomer_state(training.server)
    return FrozenServer(training.method, lasting, torch.device("cpu"), "40/30/30", False, None), clients[3:]


def newcomer(nodes: int = 60) -> Graph:
    """A graph with patchwork's features and classes, which was in no training."""
    return load_graph("patchwork:seed=1")[0].subgraph(np.arange(nodes), "newcomer")


# -- the exchange ------------------------------------------------------------------------------------


def test_newcomers_do_round_zero_and_settle_with_what_they_are_sent() -> None:
    server, newcomers = trained()
    method, cohort = server.method, Cohort(newcomers)
    state = method.start(cohort)
    up = method.local_update(state, cohort, {}, 0)
    settled = method.newcomer_update(state, cohort, method.newcomer_download(server.lasting, up.upload))
    logits = method.logits(settled.personal, cohort)
    admission = server.admit(newcomers)
    assert_same(admission.models, settled.personal)
    assert admission.val == pytest.approx((100 * accuracy(cohort, logits, cohort.val)).tolist())
    assert admission.test == pytest.approx((100 * accuracy(cohort, logits, cohort.test)).tolist())
    for mine, expected in zip(admission.predictions, cohort.parts_of(logits.softmax(1)), strict=True):
        assert torch.equal(mine, expected)
    numbers = sum(w[0].numel() for w in settled.personal.values())
    assert sum(admission.bytes_up.values()) == 2 * 4 * (numbers + 1)
    assert sum(admission.bytes_down.values()) == 2 * 4 * numbers


@pytest.mark.parametrize("cohort_size", [None, 1])
def test_newcomers_are_also_evaluated_with_what_they_are_sent_as_it_is(cohort_size: int | None) -> None:
    """Before the last step, and without changing what that step begins with."""
    server, newcomers = trained()
    method, cohort = server.method, Cohort(newcomers)
    state = method.start(cohort)
    up = method.local_update(state, cohort, {}, 0)
    down = method.newcomer_download(server.lasting, up.upload)
    given = up.personal | {name.removeprefix("model."): w.expand(2, *w.shape) for name, w in down.items()}
    logits = method.logits(given, cohort)
    admission = server.admit(newcomers, cohort_size)
    assert admission.val_untrained == pytest.approx((100 * accuracy(cohort, logits, cohort.val)).tolist())
    assert admission.test_untrained == pytest.approx((100 * accuracy(cohort, logits, cohort.test)).tolist())
    settled = method.newcomer_update(state, cohort, down)
    for name, tensor in admission.models.items():
        assert torch.allclose(tensor, settled.personal[name], atol=1e-6), name
        assert not torch.equal(tensor, given[name]), name


def test_newcomers_do_not_depend_on_each_other_and_leave_the_server_alone() -> None:
    server, newcomers = trained()
    kept = {name: tensor.clone() for name, tensor in server.lasting.items()}
    both, cut = server.admit(newcomers), server.admit(newcomers, cohort_size=1)
    alone = [server.admit([client]) for client in newcomers]
    assert both.test == pytest.approx(cut.test)
    assert both.test == pytest.approx([one.test[0] for one in alone])
    for name, tensor in both.models.items():
        assert torch.allclose(tensor, cut.models[name], atol=1e-6), name
        assert torch.allclose(tensor, torch.cat([one.models[name] for one in alone]), atol=1e-6), name
    assert_same(server.lasting, kept)


def test_what_the_server_sends_first_is_sent_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    server, newcomers = trained()
    silent = server.admit(newcomers)
    start = {name: torch.zeros_like(tensor) for name, tensor in server.lasting.items()}
    monkeypatch.setattr(Keeping, "server_start", lambda self: ({}, start))
    greeted = server.admit(newcomers)
    assert greeted.bytes_down == {name: 2 * count for name, count in silent.bytes_down.items()}
    assert greeted.bytes_up == silent.bytes_up
    moments = [name for name in silent.models if not torch.equal(silent.models[name], greeted.models[name])]
    assert moments  # they trained from what they were sent, and Adam remembers


def test_nothing_undeclared_crosses(monkeypatch: pytest.MonkeyPatch) -> None:
    server, newcomers = trained()
    gossip = {"gossip": torch.zeros(1)}
    with monkeypatch.context() as patch:
        patch.setattr(Keeping, "server_start", lambda self: ({}, gossip))
        with pytest.raises(UndeclaredError, match="Method 'keeping' tried to download 'gossip'"):
            server.admit(newcomers)
    with monkeypatch.context() as patch:
        patch.setattr(Keeping, "newcomer_download", lambda self, lasting, uploads: gossip)
        with pytest.raises(UndeclaredError, match="Method 'keeping' tried to download 'gossip'"):
            server.admit(newcomers)
    with monkeypatch.context() as patch:
        patch.setattr(Keeping, "upload", lambda self, *arguments: gossip)
        with pytest.raises(UndeclaredError, match="Method 'keeping' tried to upload 'gossip'"):
            server.admit(newcomers)


def test_a_newcomer_whose_model_gives_no_numbers_is_refused() -> None:
    server, newcomers = trained()
    broken = replace(server, lasting={name: torch.full_like(w, torch.nan) for name, w in server.lasting.items()})
    with pytest.raises(FedquiltError, match="no finite numbers come from the models of clients 3, 4"):
        broken.admit(newcomers)


def test_a_method_that_cannot_admit_names_those_that_can() -> None:
    check_admits(Keeping)
    with pytest.raises(
        FedquiltError, match=r"Method 'local' cannot admit clients after training; .* such as fedavg, .*alone"
    ):
        check_admits(find_method("local"))


def test_where_no_method_can_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in base.methods().values():
        monkeypatch.setattr(method, "admits", False)
    with pytest.raises(FedquiltError, match="none of the methods here can"):
        check_admits(find_method("local"))


# -- a graph of one's own ----------------------------------------------------------------------------


def test_a_finished_run_admits_a_graph_as_its_next_client() -> None:
    run = fedquilt.run(NAME, seeds=[0, 3], **SMALL)
    graph = newcomer()
    admitted = run.admit(graph, "40/30/30", seed=3)
    client = Client(5, graph, parse_split("40/30/30").draw(graph, 3))
    expected = run.servers[3].admit([client])
    assert_same(admitted.model, {name: tensor[0] for name, tensor in expected.models.items()})
    assert admitted.model["conv1.weight"].shape == (200, 8)
    assert admitted.predictions.shape == (60, 6)
    assert admitted.predictions.dtype == np.float32
    assert np.allclose(admitted.predictions.sum(axis=1), 1, atol=1e-5)
    assert (admitted.metric, admitted.val, admitted.test) == ("accuracy", expected.val[0], expected.test[0])
    right = (admitted.predictions.argmax(axis=1) == graph.y)[client.split == 2]
    assert admitted.test == pytest.approx(100 * right.mean())
    assert admitted.upload_bytes == sum(expected.bytes_up.values())
    assert admitted.download_bytes == sum(expected.bytes_down.values())
    # Without a seed it is the first; each seed has a server of its own.
    assert_same(run.admit(graph).model, run.admit(graph, "20/40/40", seed=0).model)
    assert not torch.equal(run.admit(graph, seed=3).model["conv1.weight"], run.admit(graph).model["conv1.weight"])


def test_a_split_is_the_graphs_own_else_the_runs() -> None:
    run = fedquilt.run(NAME, split="5fold", **SMALL)
    plain = newcomer()
    assert run.servers[0].split == "5fold"
    parts = Folds(5).draw(plain, 0)
    masks = {part: parts == code for code, part in enumerate(("train", "val", "test"))}
    own = replace(plain, masks=masks)
    # The same nodes in the same parts, whichever way they got there.
    for graph, split in ((plain, None), (plain, "5fold"), (own, None), (own, "given")):
        assert_same(run.admit(graph, split).model, run.admit(plain).model)
    with pytest.raises(FedquiltError, match="newcomer has no given split"):
        run.admit(plain, "given")
    with pytest.raises(FedquiltError, match="is not three percentages"):
        run.admit(plain, "most")


def test_copies_are_kept_together_as_in_the_run(tmp_path: Path) -> None:
    run = fedquilt.run(NAME, keep_copies="neighbours", out=tmp_path / "run", **SMALL)
    graph = newcomer()
    marked = with_copies(graph, "neighbours")
    assert not np.array_equal(parse_split("20/40/40").draw(graph, 0), parse_split("20/40/40").draw(marked, 0))
    masks = {
        part: parse_split("20/40/40").draw(marked, 0) == code for code, part in enumerate(("train", "val", "test"))
    }
    own = replace(graph, masks=masks)
    assert_same(run.admit(graph).model, run.admit(own).model)
    assert_same(fedquilt.load_run(tmp_path / "run").admit(graph).model, run.admit(own).model)


def test_features_are_normalised_as_the_runs_were() -> None:
    server = fedquilt.run(NAME, **SMALL).servers[0]
    assert not server.normalise_features
    graph = newcomer()
    done = server.admit_graph(replace(graph, x=normalise(graph.x)))
    assert_same(replace(server, normalise_features=True).admit_graph(graph).model, done.model)
    assert not torch.equal(server.admit_graph(graph).model["conv1.weight"], done.model["conv1.weight"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x": np.ones((60, 7), dtype=np.float32)}, "newcomer has 7 features and the run was trained on 200; give"),
        ({"classes": 7}, "newcomer has 7 classes and the run was trained on 6; give"),
        ({"classes": 5, "y": np.arange(60) % 5}, "newcomer has 5 classes and the run was trained on 6; give"),
        ({"y": np.full(60, -1)}, "newcomer has no labelled node"),
        ({"y": np.where(np.arange(60) < 2, 0, -1)}, "newcomer has 2 labelled nodes, too few to split 20/40/40"),
    ],
    ids=["features", "more classes", "fewer classes", "no labels", "few labels"],
)
def test_a_graph_that_does_not_fit_is_refused(changes: dict[str, Any], says: str) -> None:
    run = fedquilt.run(NAME, **SMALL)
    with pytest.raises(FedquiltError) as caught:
        run.admit(replace(newcomer(), **changes))
    assert says in str(caught.value)


def test_classes_must_be_called_alike() -> None:
    server, newcomers = trained()
    graph = replace(newcomers[0].graph, y=np.arange(9) % 3)
    named = replace(server, class_names=("a", "b", "c"))
    assert named.admit_graph(graph).val is not None  # without names, numbers are what counts
    assert named.admit_graph(replace(graph, class_names=("a", "b", "c"))).val is not None
    with pytest.raises(FedquiltError, match="numbers them in another order; name them in this order: a, b, c"):
        named.admit_graph(replace(graph, class_names=("b", "a", "c")))


def test_a_run_that_cannot_admit_says_so() -> None:
    with pytest.raises(FedquiltError, match="Method 'local' cannot admit clients after training"):
        fedquilt.run("local", **SMALL).admit(newcomer())
    with pytest.raises(FedquiltError, match="The run has no server of seed 7; choose one of: 0"):
        fedquilt.run(NAME, **SMALL).admit(newcomer(), seed=7)
    with pytest.raises(FedquiltError, match="The run kept no server that could admit anyone: an earlier version"):
        fedquilt.Run({"method": NAME}).admit(newcomer())


# -- from a folder -----------------------------------------------------------------------------------


def test_a_folder_admits_later_as_the_run_does(tmp_path: Path) -> None:
    run = fedquilt.run(NAME, out="out", seeds=[0, 1], **SMALL)
    graph = newcomer()
    for other in (fedquilt.load_run("out"), fedquilt.resume("out")):
        assert other.result == run.result
        assert other.folder == Path("out")
        for seed in (0, 1):
            assert_same(other.models[seed], run.models[seed])
            assert_same(other.servers[seed].lasting, run.servers[seed].lasting)
            assert other.servers[seed].facts() == run.servers[seed].facts()
            assert other.servers[seed].method.context == run.servers[seed].method.context
            mine, expected = other.admit(graph, seed=seed), run.admit(graph, seed=seed)
            assert_same(mine.model, expected.model)
            assert np.array_equal(mine.predictions, expected.predictions)


def test_load_run_needs_no_graph_and_no_training(tmp_path: Path) -> None:
    whole = fedquilt.run(NAME, newcomer(200), out="mine", **SMALL)
    (tmp_path / "mine" / GRAPH_FILE).unlink()
    run = fedquilt.load_run("mine", device="cpu")
    assert without_seconds(run.records[0]) == without_seconds(whole.records[0])
    run.admit(newcomer())
    fedquilt.run("local", out="other", **SMALL)
    other = fedquilt.load_run("other")
    assert other.servers == {}
    assert not (tmp_path / "other" / "seed-0" / "server.json").exists()


def test_what_cannot_be_loaded_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="There is no run folder at nowhere"):
        fedquilt.load_run("nowhere")
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run(NAME, out="stopped", watch=stop_after(0, 1), **SMALL)
    with pytest.raises(FedquiltError, match="The run in stopped is not done; go on with it: 'fedquilt resume stopped'"):
        fedquilt.load_run("stopped")
    fedquilt.run(NAME, out="out", **SMALL)
    (tmp_path / "out" / "seed-0" / "server.safetensors").write_bytes(b"")
    with pytest.raises(FedquiltError, match=r"The server in out.seed-0 cannot be used: server.safetensors is not"):
        fedquilt.load_run("out")


# -- clients held out of a run -----------------------------------------------------------------------


def experiment(**options: Any) -> ResolvedRun:
    return ResolvedRun(RunConfig.build({"method": NAME, **HELD, **options}))


def test_clients_that_train_come_first_and_newcomers_after_them() -> None:
    held, plain = experiment(edge_noise=0.2), experiment(edge_noise=0.2, hold_out_clients=0)
    for seed in (0, 1):
        out = some_clients(seed, 5, 0.4, "hold out").tolist()
        order = [m for m in range(5) if m not in out] + out
        assert held.order(seed, 5) == order
        assert held.context(seed).clients == 3
        mine, all_ = held.clients(seed), plain.clients(seed)
        assert [client.id for client in mine] == list(range(5))
        for client, number in zip(mine, order, strict=True):
            assert client.graph.name == f"patchwork/{number}"
            assert np.array_equal(client.graph.edges, all_[number].graph.edges)
            assert np.array_equal(client.split, all_[number].split)
        engine = held.training(seed).engine
        assert [client.id for part in engine.parts for client in part.cohort.members] == [0, 1, 2]
    assert plain.order(0, 5) == list(range(5))
    assert experiment(method=NAME).config.clients == 5


def test_at_least_one_is_held_out_and_at_least_one_trains() -> None:
    assert experiment(hold_out_clients=0.01).context(0).clients == 4
    assert experiment(hold_out_clients=0.99).context(0).clients == 1
    with pytest.raises(FedquiltError, match="A single client cannot be parted into two groups"):
        experiment(clients=1)


def test_trained_and_new_clients_are_reported_apart(tmp_path: Path) -> None:
    run = fedquilt.run(NAME, out="out", seeds=[0, 1], **HELD)
    assert run.result["clients"] == 5
    new = []
    for seed, line in zip((0, 1), run.result["seeds"], strict=True):
        assert len(run.records[seed][0]["clients"]["test"]) == 3
        assert run.models[seed]["conv1.weight"].shape[0] == 3
        expected = run.servers[seed].admit(experiment(seeds=[0, 1]).clients(seed)[3:])
        assert line["groups"] == {
            "trained": {"clients": 3, "test": pytest.approx(line["test"])},
            "new": {"clients": 2, "test": pytest.approx(np.mean(expected.test))},
            "new without training": {"clients": 2, "test": pytest.approx(np.mean(expected.test_untrained))},
            "new alone": {"clients": 2, "test": pytest.approx(np.mean(expected.test_alone))},
        }
        new.append(np.mean(expected.test))
        summary = RunFolder.open(Path("out")).seed(seed).summary
        assert summary is not None
        assert summary["admission"] == {
            "clients_val": expected.val,
            "clients_test": expected.test,
            "clients_val_untrained": expected.val_untrained,
            "clients_test_untrained": expected.test_untrained,
            "clients_val_alone": expected.val_alone,
            "clients_test_alone": expected.test_alone,
            "epochs": expected.epochs,
            "bytes_up": expected.bytes_up,
            "bytes_down": expected.bytes_down,
        }
    assert run.result["groups"]["new"] == {
        "clients": 2,
        "test_mean": pytest.approx(np.mean(new)),
        "test_std": pytest.approx(np.std(new)),
    }
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == run.result


def test_the_folder_says_who_was_held_out() -> None:
    fedquilt.run(NAME, out="out", **HELD)
    fedquilt.run(NAME, out="plain", **SMALL)
    kept, plain = (RunFolder.open(Path(name)).seed(0).load_arrays("split-and-partition") for name in ("out", "plain"))
    assert kept is not None
    assert plain is not None
    assert sorted(plain) == ["class_counts", "nodes", "sizes", "split"]
    parts = np.split(plain["nodes"], np.cumsum(plain["sizes"])[:-1])
    order = experiment().order(0, 5)
    assert kept["numbers"].tolist() == order
    assert np.array_equal(kept["nodes"], np.concatenate([parts[m] for m in order[:3]]))
    assert np.array_equal(kept["new_nodes"], np.concatenate([parts[m] for m in order[3:]]))
    assert [*kept["sizes"], *kept["new_sizes"]] == [len(parts[m]) for m in order]
    assert np.array_equal(kept["class_counts"], plain["class_counts"][order[:3]])
    assert kept["class_counts"].sum(1).tolist() == kept["sizes"].tolist()


@pytest.mark.parametrize(("seed", "round"), [(0, 1), (1, 0), (1, 2)])
def test_a_stopped_run_goes_on_with_the_same_clients(seed: int, round: int) -> None:
    options = HELD | {"seeds": [0, 1], "participation": 0.7, "checkpoint_seconds": 0.0}
    whole = fedquilt.run(NAME, **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run(NAME, out="stopped", watch=stop_after(seed, round), **options)
    resumed = fedquilt.resume("stopped")
    assert resumed.result["groups"] == whole.result["groups"]
    for s in (0, 1):
        assert without_seconds(resumed.records[s]) == without_seconds(whole.records[s])
        assert_same(resumed.servers[s].lasting, whole.servers[s].lasting)
    shutil.rmtree("stopped")


def test_held_out_clients_and_an_attack_go_together() -> None:
    run = fedquilt.run("fedpub", **HELD, attack="gaussian", attack_ratio=0.3)
    groups = run.result["groups"]
    assert {name: part["clients"] for name, part in groups.items()} == {
        "honest": 2,
        "malicious": 1,
        "trained": 3,
        "new": 2,
        "new without training": 2,
        "new alone": 2,
    }


def test_a_method_that_cannot_admit_is_refused_before_anything_trains(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="Method 'local' cannot admit clients after training; choose one"):
        fedquilt.run("local", out="out", **HELD)
    for share in (1.0, -0.1):
        with pytest.raises(FedquiltError, match=f"The option hold_out_clients={share} is not possible"):
            fedquilt.run(NAME, out="out", **SMALL, hold_out_clients=share)
    assert not (tmp_path / "out").exists()
