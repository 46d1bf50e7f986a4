"""FED-PUB's studies and their published numbers, against what the paper prints."""

from __future__ import annotations

import math

import pytest

from fedquilt.methods.base import methods
from fedquilt.studies.catalogue_files import study_names
from support.published import labels, printed, sound_numbers, sound_study

METHODS = {"Local", "FedAvg", "FedProx", "FedPer", "GCFL", "FedGNN", "FedSage+", "FED-PUB"}
SIX = {"Cora", "CiteSeer", "PubMed", "Amazon-Computer", "Amazon-Photo", "ogbn-arxiv"}
THREE = {"Cora", "CiteSeer", "PubMed"}
PLACES = {
    "table-1": 144,
    "table-2": 144,
    "table-3": 7,
    "table-4": 48,
    "table-5": 7,
    "table-6": 24,
    "table-7": 8,
    "table-8": 24,
    "table-9": 32,
    "table-10": 6,
    "table-11": 24,
    "table-12": 20,
    "table-12-oracle": 4,
    "figure-1": 7,
    "figure-3": 12,
    "figure-4": 48,
    "figure-5": 48,
    "figure-6": 2,
    "figure-7": 12,
    "figure-8": 24,
    "figure-9": 10,
    "figure-10": 14,
    "figure-11": 7,
    "figure-12": 24,
    "link": 250,
    "masks": 6,
}
OTHERS = {"link"}  # studies with methods that the paper does not have
NAMES = {f"fedpub-{name}" for name in PLACES}


@pytest.mark.parametrize("name", PLACES)
def test_every_place_of_a_study_can_be_run(name):
    study = sound_study(f"fedpub-{name}", PLACES[name])
    assert study.paper == "fedpub"
    assert study.title.startswith("FED-PUB, ")
    assert study.seeds == 3


def test_there_are_no_other_studies():
    assert {name for name in study_names() if name.startswith("fedpub-")} == NAMES


@pytest.mark.parametrize("name", PLACES)
def test_the_methods_that_are_here_are_called_by_their_names(name):
    study = sound_study(f"fedpub-{name}", PLACES[name])
    if study.of != "partition" and name not in OTHERS:
        named = {study.options_at(at)["method"] for at in study.places()}
        here = {"local", "fedavg", "fedprox", "fedper", "fedpub"}
        assert named <= here | {"gcfl", "fedgnn", "fedsageplus"}
        assert named & here <= set(methods())


@pytest.mark.parametrize(
    ("name", "partition", "clients"),
    [("table-1", "overlapping", {"10", "30", "50"}), ("table-2", "disjoint", {"5", "10", "20"})],
)
def test_main_tables_have_every_method_on_every_graph(name, partition, clients):
    study = sound_study(f"fedpub-{name}", 144)
    assert study.tuned
    assert study.others
    assert study.options == {"partition": partition}
    published = sound_numbers(study, 152)
    assert labels(published, "method") == METHODS
    assert labels(published, "dataset") == SIX
    assert labels(published, "clients") == clients
    assert sum(one.is_average for one in published) == 8


def test_table_1():
    published = sound_numbers(sound_study("fedpub-table-1", 144), 152)
    assert printed(published, method="Local", dataset="Cora", clients="10") == (73.98, 0.25)
    assert printed(published, method="FedSage+", dataset="Cora", clients="50") == (55.48, 11.5)
    assert printed(published, method="FedGNN", dataset="Amazon-Photo", clients="50") == (78.90, 6.46)
    assert printed(published, method="FED-PUB", dataset="ogbn-arxiv", clients="50") == (62.55, 0.12)
    assert printed(published, method="FED-PUB", dataset="average", clients="average") == (79.53, None)


def test_table_2():
    published = sound_numbers(sound_study("fedpub-table-2", 144), 152)
    assert printed(published, method="Local", dataset="Cora", clients="5") == (81.30, 0.21)
    assert printed(published, method="FedProx", dataset="Cora", clients="20") == (48.22, 6.81)
    assert printed(published, method="GCFL", dataset="PubMed", clients="20") == (83.94, 0.36)
    assert printed(published, method="FedAvg", dataset="Amazon-Computer", clients="5") == (84.88, 1.96)
    assert printed(published, method="FED-PUB", dataset="ogbn-arxiv", clients="20") == (66.64, 0.12)
    assert printed(published, method="FedSage+", dataset="average", clients="average") == (73.47, None)


def test_table_3_has_sizes_but_no_costs():
    published = sound_numbers(sound_study("fedpub-table-3", 7), 21, unprinted=7)
    sparse = {f"FED-PUB (lambda1={strength})" for strength in ("9e-1", "7e-1", "5e-1")}
    assert labels(published, "method") == {"FedAvg", "FedGNN", "FedSage+", "GCFL"} | sparse
    assert labels(published, "dataset") == {"Cora"}
    assert all(one.note for one in published if one.value == "cost")
    assert printed(published, method="FedAvg", dataset="Cora") == (76.48, 0.36)
    assert printed(published, "model_size", method="GCFL", dataset="Cora") == (100.0, None)
    assert printed(published, "model_size", method="FED-PUB (lambda1=9e-1)", dataset="Cora") == (25.13, None)
    assert printed(published, method="FED-PUB (lambda1=5e-1)", dataset="Cora") == (79.89, 0.12)


def test_table_3_and_table_5_share_two_models():
    sizes = sound_numbers(sound_study("fedpub-table-3", 7), 21, unprinted=7)
    sparsities = sound_numbers(sound_study("fedpub-table-5", 7), 14)
    for strength, lambda2 in (("9e-1", "1e-3"), ("7e-1", "1e-1")):
        size = {"method": f"FED-PUB (lambda1={strength})", "dataset": "Cora"}
        sparsity = {"lambda1": strength, "lambda2": lambda2}
        assert printed(sizes, **size) == printed(sparsities, **sparsity)
        whole = printed(sizes, "model_size", **size)[0] + printed(sparsities, "sparsity", **sparsity)[0]
        assert whole == pytest.approx(100)


def test_table_4():
    published = sound_numbers(sound_study("fedpub-table-4", 48), 204, unprinted=12)
    assert labels(published, "partition") == {"Overlapping", "Non-overlapping"}
    assert labels(published, "dataset") == SIX
    assert labels(published, "clients") == {"Ori", "5", "10", "20", "30", "50"}
    assert all(one.at["clients"] == "Ori" for one in published if math.isnan(one.mean))
    over, apart = {"partition": "Overlapping"}, {"partition": "Non-overlapping"}
    assert printed(published, "edges", **over, dataset="Cora", clients="10") == (1249, None)
    assert printed(published, "nodes", **over, dataset="ogbn-arxiv", clients="Ori") == (169343, None)
    assert printed(published, "clustering", **over, dataset="CiteSeer", clients="50") == (0.096, None)
    assert printed(published, "edges", **apart, dataset="ogbn-arxiv", clients="5") == (410948, None)
    assert printed(published, "classes", **apart, dataset="Amazon-Computer", clients="Ori") == (10, None)
    assert printed(published, "heterogeneity", **apart, dataset="Amazon-Photo", clients="20") == (0.751, None)


def test_the_original_graph_of_table_4_is_one_client():
    study = sound_study("fedpub-table-4", 48)
    whole = [study.options_at(at) for at in study.places() if at["clients"] == "Ori"]
    assert len(whole) == 12
    assert all((one["partition"], one["clients"]) == ("disjoint", 1) for one in whole)


def test_table_5():
    published = sound_numbers(sound_study("fedpub-table-5", 7), 14)
    assert labels(published, "lambda1") == {"3e-1", "5e-1", "7e-1", "9e-1"}
    assert labels(published, "lambda2") == {"1e-3", "1e-2", "1e-1", "1e-0"}
    assert printed(published, lambda1="3e-1", lambda2="1e-3") == (79.62, 0.23)
    assert printed(published, "sparsity", lambda1="9e-1", lambda2="1e-3") == (74.87, 0.34)
    assert printed(published, lambda1="7e-1", lambda2="1e-2") == (78.56, 0.05)
    assert printed(published, "sparsity", lambda1="7e-1", lambda2="1e-0") == (57.28, 0.16)


@pytest.mark.parametrize(
    ("name", "partition", "clients", "graphs", "spots"),
    [
        (
            "table-6",
            "louvain",
            10,
            THREE,
            {
                ("Local", "Cora"): (78.56, 0.27),
                ("GCFL", "CiteSeer"): (64.20, 0.31),
                ("FED-PUB", "PubMed"): (86.20, 0.11),
            },
        ),
        (
            "table-7",
            "random",
            10,
            {"CiteSeer"},
            {("Local", "CiteSeer"): (44.27, 1.05), ("FedSage+", "CiteSeer"): (61.03, 0.11)}
            | {("FED-PUB", "CiteSeer"): (63.63, 0.86)},
        ),
        (
            "table-8",
            "disjoint",
            3,
            THREE,
            {
                ("Local", "PubMed"): (84.81, 0.40),
                ("FedSage+", "Cora"): (77.79, 1.96),
                ("FED-PUB", "CiteSeer"): (70.66, 0.34),
            },
        ),
        (
            "figure-12",
            "imbalanced",
            10,
            THREE,
            {
                ("Local", "Cora"): (83.19, 0.53),
                ("FedProx", "CiteSeer"): (68.17, 1.74),
                ("FED-PUB", "PubMed"): (86.44, 0.45),
            },
        ),
    ],
)
def test_other_cuts(name, partition, clients, graphs, spots):
    study = sound_study(f"fedpub-{name}", 8 * len(graphs))
    assert study.options == {"partition": partition, "clients": clients}
    published = sound_numbers(study, 8 * len(graphs))
    assert labels(published, "method") == METHODS
    assert labels(published, "dataset") == graphs
    for (method, dataset), cell in spots.items():
        assert printed(published, method=method, dataset=dataset) == cell


def test_table_9():
    published = sound_numbers(sound_study("fedpub-table-9", 32), 8)
    assert labels(published, "graph") == {"SBM", "ER", "One", "Feature"}
    assert labels(published, "partition") == {"Overlapping", "Non-overlapping"}
    assert labels(published, "form") == {"Public code"}
    value, form = "label_correlation", "Public code"
    assert printed(published, value, form=form, graph="SBM", partition="Overlapping") == (0.937, None)
    assert printed(published, value, form=form, graph="One", partition="Overlapping") == (0.822, None)
    assert printed(published, value, form=form, graph="ER", partition="Non-overlapping") == (0.712, None)
    assert printed(published, value, form=form, graph="Feature", partition="Non-overlapping") == (0.632, None)


def test_table_10():
    published = sound_numbers(sound_study("fedpub-table-10", 6), 20)
    assert labels(published, "method") == {"FedAvg", "Parameter", "Gradient", "Label", "Function (FED-PUB)"}
    assert labels(published, "dataset") == {"Cora"}
    assert printed(published, "test@20", method="FedAvg", dataset="Cora") == (29.94, None)
    assert printed(published, "test@40", method="Parameter", dataset="Cora") == (35.89, None)
    assert printed(published, "test@60", method="Label", dataset="Cora") == (76.50, None)
    assert printed(published, "test@80", method="Function (FED-PUB)", dataset="Cora") == (75.90, None)


def test_table_11_has_its_scenarios_the_right_way_round():
    study = sound_study("fedpub-table-11", 24)
    published = sound_numbers(study, 24)
    explicit, implicit = "FED-PUB with Explicit Community", "FED-PUB with Implicit Community"
    assert labels(published, "communities") == {explicit, implicit}
    assert labels(published, "dataset") == SIX
    assert printed(published, partition="Non-overlapping", communities=explicit, dataset="Cora") == (80.45, 0.73)
    assert printed(published, partition="Overlapping", communities=explicit, dataset="ogbn-arxiv") == (61.52, 0.06)
    main = {
        "Non-overlapping": sound_numbers(sound_study("fedpub-table-2", 144), 152),
        "Overlapping": sound_numbers(sound_study("fedpub-table-1", 144), 152),
    }
    for partition, table in main.items():
        clients = str(study.level("partition", partition).options["clients"])
        for dataset in SIX:
            ours = printed(published, partition=partition, communities=implicit, dataset=dataset)
            assert ours == printed(table, method="FED-PUB", dataset=dataset, clients=clients)


def test_table_12_repeats_cells_of_the_main_tables():
    published = sound_numbers(sound_study("fedpub-table-12", 20), 20)
    assert labels(published, "method") == {"Local", "FedAvg", "FedGNN", "FedSage+", "FED-PUB"}
    main = {
        "Non-overlapping": sound_numbers(sound_study("fedpub-table-2", 144), 152),
        "Overlapping": sound_numbers(sound_study("fedpub-table-1", 144), 152),
    }
    for one in published:
        table, clients = main[one.at["partition"]], one.at["clients"]
        assert one.mean == printed(table, method=one.at["method"], dataset="Cora", clients=clients)[0]
    assert printed(published, method="FedGNN", partition="Non-overlapping", clients="20") == (70.10, None)


def test_the_oracle_of_table_12():
    study = sound_study("fedpub-table-12-oracle", 4)
    assert study.of == "oracle"
    published = sound_numbers(study, 4)
    assert labels(published, "method") == {"Oracle"}
    assert labels(published, "clients") == {"5", "20", "10", "50"}
    assert printed(published, method="Oracle", partition="Non-overlapping", clients="5") == (85.07, None)
    assert printed(published, method="Oracle", partition="Overlapping", clients="50") == (85.28, None)


@pytest.mark.parametrize("number", [3, 4, 5, 6, 7, 8, 9])
def test_figures_are_drawn_and_print_no_numbers(number):
    study = sound_study(f"fedpub-figure-{number}", PLACES[f"figure-{number}"])
    assert study.figures
    sound_numbers(study, 0)


def test_figure_10():
    """Its numbers are printed beside the figure: ROC AUC of link prediction on ogbn-arxiv."""
    study = sound_study("fedpub-figure-10", 14)
    assert study.options["task"] == "link"
    published = sound_numbers(study, 14)
    assert labels(published, "method") == METHODS - {"FedGNN"}
    assert printed(published, method="FED-PUB", clients="5") == (91.76, None)
    assert printed(published, method="Local", clients="10") == (89.58, None)
    for clients in ("5", "10"):  # the claim, as printed
        best = max(published, key=lambda one: one.mean if one.at["clients"] == clients else 0.0)
        assert best.at["method"] == "FED-PUB"


def test_link_prediction_has_every_method_that_can_learn_it():
    study = sound_study("fedpub-link", PLACES["link"])
    named = {study.options_at(at)["method"] for at in study.places()}
    refused = {"adafgl", "centralised", "fedgta", "fedproto", "fedssa", "fedtad", "majority"}
    assert named == set(methods()) - refused
