"""FedSheafHN's studies and printed numbers: whole, sound, and a few of each table as read by eye."""

from __future__ import annotations

import pytest

from fedquilt.studies.catalogue_files import study_names
from fedquilt.studies.published import read_published
from support.published import labels, printed, sound_numbers, sound_study

METHODS = {"Local", "FedAvg", "FedPer", "FedSage+", "pFedHN", "pFedGraph", "FED-PUB", "FedSheafHN"}
GRAPHS = {"Cora", "Citeseer", "Pubmed", "Amazon-Computer", "Amazon-Photo", "ogbn-arxiv"}
SCENARIOS = {"Non-overlapping", "Overlapping"}


def test_all_studies_are_there():
    names = [name.removeprefix("fedsheafhn-") for name in study_names() if name.startswith("fedsheafhn-")]
    tables = [f"table-{number}" for number in ("1", "1-few-labels", "2", "3", "3-shuffled", "4", "7", "8")]
    assert names == tables + [f"figure-{number}" for number in (2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("table", "clients", "kind", "spots"),
    [
        (
            1,
            *({"10", "20"}, "disjoint"),
            {
                ("Local", "Cora", "10"): (79.94, 0.24),
                ("FedAvg", "ogbn-arxiv", "20"): (42.02, 17.09),
                ("FedSage+", "Cora", "20"): (57.97, 12.6),
                ("pFedGraph", "Amazon-Computer", "10"): (66.45, 0.83),
                ("FedSheafHN", "Pubmed", "20"): (85.57, 0.05),
                ("FedSheafHN", "ogbn-arxiv", "20"): (71.75, 0.09),
            },
        ),
        (
            2,
            *({"30", "50"}, "overlapping"),
            {
                ("Local", "Cora", "30"): (71.65, 0.12),
                ("Local", "ogbn-arxiv", "50"): (60.04, 0.04),
                ("FedPer", "Pubmed", "30"): (70.08, 0.38),
                ("pFedHN", "Amazon-Photo", "50"): (57.57, 3.60),
                ("FedSheafHN", "Citeseer", "50"): (68.59, 0.12),
                ("FedSheafHN", "ogbn-arxiv", "30"): (67.69, 0.10),
            },
        ),
    ],
)
def test_main_tables(table, clients, kind, spots):
    study = sound_study(f"fedsheafhn-table-{table}", 108)
    assert study.tuned
    assert study.others
    assert study.seeds == 5
    options = study.options_at(next(study.places()))
    assert (options["partition"], options["split"], options["rounds"]) == (kind, "40/30/30", 100)
    numbers = sound_numbers(study, 96)
    assert labels(numbers, "method") == METHODS
    assert labels(numbers, "dataset") == GRAPHS
    assert labels(numbers, "clients") == clients
    for (method, dataset, count), expected in spots.items():
        assert printed(numbers, method=method, dataset=dataset, clients=count) == expected


@pytest.mark.parametrize("table", [1, 2])
def test_all_methods_train_as_many_epochs_on_a_graph(table):
    study = sound_study(f"fedsheafhn-table-{table}", 108)
    trained = {(at["dataset"], study.options_at(at)["epochs"]) for at in study.places()}
    assert len(trained) == len(GRAPHS)


def test_arxiv_has_its_own_rounds_and_warm_up():
    study = sound_study("fedsheafhn-table-1", 108)
    at = {"method": "FedSheafHN", "dataset": "ogbn-arxiv", "clients": "10"}
    assert study.options_at(at)["rounds"] == 200
    assert study.options_at(at)["settings"] == {"warmup": 50}
    assert "settings" not in study.options_at(at | {"method": "Local"})
    assert "settings" not in study.options_at(at | {"dataset": "Cora"})


def test_parts():
    study = sound_study("fedsheafhn-table-3", 64)
    numbers = sound_numbers(study, 12)
    assert len(labels(numbers, "variant")) == 6
    assert labels(numbers, "dataset") == {"ogbn-arxiv"}
    assert labels(numbers, "partition") == SCENARIOS
    spots = {
        ("Base model (FedAvg)", "Non-overlapping"): 36.56,
        ("Base model (FedAvg)", "Overlapping"): 42.95,
        ("+ Sheaf diffusion", "Non-overlapping"): 70.05,
        ("+ Dynamic embedding", "Overlapping"): 67.89,
    }
    for (variant, partition), mean in spots.items():
        assert printed(numbers, variant=variant, dataset="ogbn-arxiv", partition=partition) == (mean, None)


def test_parts_are_added_one_by_one():
    study = sound_study("fedsheafhn-table-3", 64)
    told = {at["variant"]: study.options_at(at).get("settings", {}) for at in study.places() if at["dataset"] == "Cora"}
    assert told == {
        "Base model (FedAvg)": {},
        "FedPer": {},
        "FedSheafHN, all alike": {"personal_step": 0},
        "+ Hypernetwork": {"client_vector": "one-hot", "diffusion": "none", "attention": False},
        "+ Collaboration graph": {"diffusion": "none", "attention": False, "refresh": 0},
        "+ Sheaf diffusion": {"attention": False, "refresh": 0},
        "+ Attention": {"refresh": 0},
        "+ Dynamic embedding": {},
    }


def test_diffusion():
    study = sound_study("fedsheafhn-table-4", 48)
    numbers = sound_numbers(study, 8)
    assert labels(numbers, "variant") == {"w/o Sheaf diffusion", "w/ GCN", "w/ GAT", "w/ Sheaf diffusion"}
    assert labels(numbers, "partition") == SCENARIOS
    spots = {
        ("w/o Sheaf diffusion", "Non-overlapping"): 69.75,
        ("w/ GCN", "Overlapping"): 65.96,
        ("w/ GAT", "Overlapping"): 65.90,
        ("w/ Sheaf diffusion", "Non-overlapping"): 71.87,
    }
    for (variant, partition), mean in spots.items():
        assert printed(numbers, variant=variant, dataset="ogbn-arxiv", partition=partition) == (mean, None)


@pytest.mark.parametrize(
    ("table", "spots"),
    [
        (
            7,
            {
                ("Same value", "5", "FedSheafHN", "0"): 71.87,
                ("Same value", "20", "FED-PUB", "0.8"): 60.13,
                ("Gaussian", "5", "FED-PUB", "0.4"): 61.25,
                ("Gaussian", "20", "FED-PUB", "0.2"): 59.96,
            },
        ),
        (
            8,
            {
                ("Same value", "5", "FedSheafHN", "0.8"): 67.52,
                ("Same value", "20", "FED-PUB", "0.6"): 58.92,
                ("Gaussian", "5", "FedSheafHN", "0.4"): 67.75,
                ("Gaussian", "20", "FED-PUB", "0.8"): 59.60,
            },
        ),
    ],
)
def test_malicious_clients(table, spots):
    study = sound_study(f"fedsheafhn-table-{table}", 180)
    numbers = sound_numbers(study, 40)
    assert labels(numbers, "attack") == {"Same value", "Gaussian"}
    assert labels(numbers, "tau") == {"5", "20"}
    assert labels(numbers, "method") == {"FedSheafHN", "FED-PUB"}
    assert labels(numbers, "ratio") == {"0", "0.2", "0.4", "0.6", "0.8"}
    for (attack, tau, method, ratio), mean in spots.items():
        at = {"attack": attack, "tau": tau, "method": method, "dataset": "ogbn-arxiv", "ratio": ratio}
        assert printed(numbers, **at) == (mean, None)


@pytest.mark.parametrize("table", [7, 8])
def test_without_malicious_clients_all_attacks_are_one_run(table):
    study = sound_study(f"fedsheafhn-table-{table}", 180)
    honest = [study.options_at(at) for at in study.places() if at["ratio"] == "0" and at["dataset"] == "Cora"]
    assert len(honest) == 12
    assert all(options["attack"] is None for options in honest)
    assert len({str(sorted(options.items(), key=str)) for options in honest}) == 3


def test_the_misprint_of_table_8_is_noted():
    study = sound_study("fedsheafhn-table-8", 180)
    noted = [one for one in read_published(study) if one.note]
    assert len(noted) == 4
    assert {(one.at["method"], one.at["ratio"], one.mean) for one in noted} == {("FED-PUB", "0", 62.55)}


@pytest.mark.parametrize(
    ("number", "places", "kinds"),
    [
        (2, 36, ["convergence"]),
        (3, 36, ["convergence"]),
        (4, 80, ["bars", "bars", "bars"]),
        (5, 20, ["convergence"]),
    ],
)
def test_figures(number, places, kinds):
    study = sound_study(f"fedsheafhn-figure-{number}", places)
    assert [figure.kind for figure in study.figures] == kinds
    assert read_published(study) == []


@pytest.mark.parametrize(("figure", "table", "clients"), [(2, 1, "20"), (3, 2, "30")])
def test_convergence_is_that_of_the_main_table(figure, table, clients):
    drawn, main = sound_study(f"fedsheafhn-figure-{figure}", 36), sound_study(f"fedsheafhn-table-{table}", 108)
    tabled = [main.options_at(at) for at in main.places() if at["clients"] == clients]
    assert all(drawn.options_at(at) in tabled for at in drawn.places())


def test_shuffled_clients_and_few_labels():
    study = sound_study("fedsheafhn-table-3-shuffled", 78)
    told = {at["variant"]: study.options_at(at) for at in study.places() if at["generated"] == "graph layers"}
    assert told["shuffled every round"]["settings"] == {"shuffle": "every-round"}
    assert told["FedPer"]["epochs"] == told["FedSheafHN"]["epochs"]
    few = sound_study("fedsheafhn-table-1-few-labels", 144)
    assert {few.options_at(at)["epochs"] for at in few.places()} == {3}
