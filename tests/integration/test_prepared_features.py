"""Features in raw units: prepared when a graph trains, stored with its models, and applied wherever these are used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from benchmarks.raw_tables import raw_table

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.export import load_module, module_of, save_module
from fedquilt.federation.coordinator.planning import plan_preparation
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.examples import write_example_sites
from fedquilt.federation.site.predict import predict
from fedquilt.graphs.fingerprint import fingerprints
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.preparation import Preparation
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.split import TEST
from fedquilt.runs.config import GIVEN, RunConfig
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.cross_evaluation import at_clients, at_neighbours, whole_graph
from support.flower_doubles import MemoryGrid, edit_site, federation, site_models
from support.small_runs import stop_after

WARD, _ = raw_table("ward", nodes=240)
OPTIONS: dict[str, Any] = {"clients": 3, "rounds": 6, "split": "40/30/30", "device": "cpu", "settings": {"hidden": 16}}


def resolve(graph: Graph | str = WARD, **options: Any) -> ResolvedRun:
    given = None if isinstance(graph, str) else (graph, Protocol())
    config = OPTIONS | {"method": "fedavg", "dataset": GIVEN if given else graph} | options
    return ResolvedRun(RunConfig.build(config), given)


def data_of(graph: Graph) -> Any:
    return graph.to_data()


def test_a_graph_of_ones_own_is_prepared_and_a_dataset_is_not(tmp_path: Path) -> None:
    write_npz(WARD, tmp_path / "ward.npz")
    assert resolve().config.prepare == "standard"
    assert resolve(str(tmp_path / "ward.npz")).config.prepare == "standard"
    assert resolve(Graph.from_data(data_of(WARD))).config.prepare == "standard"
    assert resolve(replace(WARD, x=sp.csr_matrix(WARD.x))).config.prepare == "rows"
    assert resolve(prepare="none").config.prepare == "none"
    named = resolve("patchwork")
    assert named.config.prepare == "none"
    raw, used = (
        [fingerprints(client.graph) for client in clients] for clients in (named.raw_clients(0), named.clients(0))
    )
    assert raw == used


def test_each_client_prepares_by_its_own_nodes_alone() -> None:
    """Another client's features can change without a difference to it."""
    before = resolve()
    nodes = before.cut(0)[0].nodes
    x = WARD.x.copy()
    x[nodes[1]] *= 1000
    after = resolve(replace(WARD, x=x))
    mine, other = before.clients(0), after.clients(0)
    assert np.array_equal(mine[0].graph.x, other[0].graph.x)
    assert np.allclose(mine[1].graph.x[:, :5], other[1].graph.x[:, :5], atol=1e-4)  # units do not matter
    for client, raw in zip(mine, before.raw_clients(0), strict=True):
        assert np.array_equal(client.graph.x, Preparation.of(raw.graph.x, "standard").apply(raw.graph.x))
    shared = resolve(prepare_statistics="shared").preparations(0)
    assert len({id(how) for how in shared}) == 1


@pytest.mark.parametrize("views", [None, "filter", "gpr"])
def test_raw_units_stay_at_the_majority_and_prepared_ones_learn(views: str | None) -> None:
    """The probabilities of Quilt's views are mostly exactly one on features as they are, and no longer on prepared ones."""
    floor = fedquilt.run("majority", WARD, **OPTIONS | {"settings": {}}).result["test_mean"]
    settings = OPTIONS["settings"] | ({"views": views} if views else {}) | {"feature_length": 0.0, "weight_decay": 0.0}
    options = OPTIONS | {"rounds": 30, "settings": settings}
    raw = fedquilt.run("quilt", WARD, prepare="none", **options)
    prepared = fedquilt.run("quilt", WARD, **options)
    assert raw.result["test_mean"] < floor + 5
    assert prepared.result["test_mean"] > floor + 12
    tops = []
    for run in (raw, prepared):
        (first, *_) = resolve(method="quilt").raw_clients(0)
        tops.append(module_of(run, client=0)(data_of(first.graph)).softmax(1).max(1).values)
    # Views that are sure and disagree give a class the sum of the weights of those that are for it.
    mixtures = [run.models[0].get("mixture", torch.ones(3, 1))[0] for run in (raw, prepared)]
    near = [is_a_sum_of(top, mixture).float().mean() for top, mixture in zip(tops, mixtures, strict=True)]
    assert near[0] > 0.75  # raw features amplify last bits, which differ between processors
    assert near[1] < 0.1
    assert not (tops[1] == 1).any()


def is_a_sum_of(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Whether each value [n] is the sum of some of the weights [V]."""
    sums = torch.cartesian_prod(*(torch.tensor([0.0, float(w)]) for w in weights)).view(2 ** len(weights), -1).sum(1)
    return (values.unsqueeze(1) - sums).abs().amin(1) < 1e-6


@pytest.mark.parametrize("statistics", ["own", "shared"])
def test_an_exported_model_takes_raw_features(tmp_path: Path, statistics: str) -> None:
    run = fedquilt.run("fedper", WARD, out=tmp_path / "run", prepare_statistics=statistics, **OPTIONS)
    loaded = fedquilt.load_run(tmp_path / "run")
    tests = [record["clients"]["test"] for record in run.records[0]][run.result["seeds"][0]["best_round"]]
    for client in resolve().raw_clients(0):
        data = data_of(client.graph)
        logits = module_of(run, client=client.id)(data)
        right = logits.argmax(1).numpy() == client.graph.y
        assert 100 * right[client.split == TEST].mean() == pytest.approx(tests[client.id], abs=1e-4)
        save_module(module_of(loaded, client=client.id), tmp_path / "module")
        assert torch.equal(load_module(tmp_path / "module")(data), logits)
    assert ("statistics_bytes" in fedquilt.runs.folder.SeedFolder(tmp_path / "run" / "seed-0").summary) == (
        statistics == "shared"
    )


def test_a_stopped_run_goes_on_with_the_same_numbers_and_the_same_preparation(tmp_path: Path) -> None:
    whole = fedquilt.run("fedavg", WARD, **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", WARD, out=tmp_path / "run", watch=stop_after(0, 3), checkpoint_seconds=0, **OPTIONS)
    resumed = fedquilt.resume(tmp_path / "run")
    assert [r["val"] for r in resumed.records[0]] == [r["val"] for r in whole.records[0]]
    assert resumed.facts[0]["preparations"] == whole.facts[0]["preparations"]


def test_a_run_does_not_go_on_with_another_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", WARD, out=tmp_path / "run", watch=stop_after(0, 3), **OPTIONS)
    monkeypatch.setattr("fedquilt.graphs.column_sums.TAIL", 0.2)
    with pytest.raises(FedquiltError, match="the features of seed 0 are prepared otherwise"):
        fedquilt.resume(tmp_path / "run")


@pytest.mark.parametrize("name", ["fedavg", "quilt"])
def test_a_cohort_trains_as_single_clients_do(name: str) -> None:
    together = fedquilt.run(name, WARD, **OPTIONS)
    alone = fedquilt.run(name, WARD, cohort_size=1, **OPTIONS)
    for mine, other in zip(together.records[0], alone.records[0], strict=True):
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)


@pytest.mark.parametrize("name", ["fedavg", "quilt"])
def test_sites_prepare_as_clients_in_process_do(name: str, tmp_path: Path) -> None:
    """The same models; a site's predictions for its raw graph are those of the run's exported model."""
    options = OPTIONS | {"method": name, "seeds": [3]}
    here = resolve(**options)
    run = fedquilt.run(dataset=WARD, **options)
    sites = write_example_sites(tmp_path, **options | {"dataset": _saved(tmp_path)})
    for path in sites:
        edit_site(path, permits="all")
    there = federation(
        tmp_path, here.raw_clients(3), MemoryGrid(sites), method=name, rounds=6, settings={"hidden": 16}, prepare=""
    )
    there.config = there.config.model_copy(update={"dataset": "federation"})
    there.run()
    assert there.incidents.all == []
    assert there.folder.config["federation"]["prepare"] == "standard"
    for mine, other in zip(there.folder.seed(3).records(), run.records[3], strict=True):
        assert mine["val"] == pytest.approx(other["val"], abs=1e-4)
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
    for m, (path, (_, facts)) in enumerate(zip(sites, site_models(tmp_path), strict=True)):
        assert facts["preparation"] == run.facts[3]["preparations"][m]
        (client,) = (c for c in here.raw_clients(3) if c.id == m)
        expected = module_of(run, client=m)(data_of(client.graph)).softmax(1).detach().numpy()
        assert np.allclose(predict(read_site(path)).values, expected, atol=1e-4)


def _saved(folder: Path) -> str:
    write_npz(WARD, folder / "ward.npz")
    return str(folder / "ward.npz")


def test_a_newcomer_prepares_by_its_own_statistics_too() -> None:
    options = OPTIONS | {"method": "fedsheafhn", "settings": {}}
    run = fedquilt.run(dataset=WARD, hold_out_clients=0.4, **options)
    assert run.result["groups"]["new"]["test_mean"] is not None
    other, _ = raw_table("units", nodes=150)
    admitted = run.admit(other)
    assert np.array_equal(admitted.preparation.centre, Preparation.of(other.x, "standard").centre)
    shared = fedquilt.run(dataset=WARD, prepare_statistics="shared", **options)
    how = shared.admit(other).preparation
    assert how.facts() == shared.facts[0]["preparations"][0]


def test_a_model_elsewhere_takes_what_its_own_training_took() -> None:
    """The whole graph's model at the clients, and a client's at its neighbour: by the model's own preparation."""
    clients = resolve(seeds=[0])
    oracle = fedquilt.run(dataset=WARD, **OPTIONS | {"method": "fedavg", "clients": 1})
    assert whole_graph(clients.config).clients == 1
    found = at_clients(clients, oracle)
    model = module_of(oracle, client=0)
    shares = [
        (model(data_of(c.graph)).argmax(1).numpy() == c.graph.y)[c.split == TEST].mean() for c in clients.raw_clients(0)
    ]
    assert found["test"] == pytest.approx(100 * np.mean(shares), abs=1e-3)
    assert at_neighbours(clients, fedquilt.run(dataset=WARD, **OPTIONS | {"method": "fedavg"})) is not None


def test_the_coordinator_takes_what_sites_suggest() -> None:
    class Said:
        def __init__(self, name: str, prepare: str) -> None:
            self.name, self.prepare = name, prepare

    def plan(*kinds: str, prepare: str = "", dataset: str = "federation") -> str:
        asked: Any = type("Asked", (), {"prepare": prepare, "dataset": dataset})
        sites: Any = [Said(f"site-{m}", kind) for m, kind in enumerate(kinds)]
        return plan_preparation(asked, sites)

    assert plan("rows", "rows") == "rows"
    assert plan("rows", "standard") == "standard"
    assert plan("none", "none") == "none"
    assert plan("rows", "none", prepare="standard") == "standard"
    assert plan("standard", "standard", dataset="cora") == "none"
    with pytest.raises(FedquiltError, match="Site 'site-1' says prepare: none for its features and site 'site-0' rows"):
        plan("rows", "none")
