"""FedSSA's studies and printed numbers: whole, sound, and a few of each table as read by eye."""

from __future__ import annotations

import pytest

from fedquilt.studies.catalogue_files import study_names
from fedquilt.studies.published import read_published
from support.published import labels, printed, sound_numbers, sound_study

METHODS = {
    *("Local", "FedAvg", "FedProx", "FedPer", "GCFL", "FedGNN", "FedSage+"),
    *("FED-PUB", "FedGTA", "AdaFGL", "FedTAD", "FedIIH", "FedSSA"),
}
HOMOPHILOUS = {"Cora", "CiteSeer", "PubMed", "Amazon-Computer", "Amazon-Photo", "ogbn-arxiv"}
HETEROPHILOUS = {"Roman-empire", "Amazon-ratings", "Minesweeper", "Tolokers", "Questions"}
DISJOINT, OVERLAPPING = {"5", "10", "20"}, {"10", "30", "50"}
VARIANTS = {"FedSSA", "w/o structural", "w/o semantic", "w/o both"}


def test_all_studies_are_there():
    names = [name.removeprefix("fedssa-") for name in study_names() if name.startswith("fedssa-")]
    tables = [f"table-{number}" for number in (1, 2, 6, 7, 8, 9, 10)]
    assert names == tables + [f"figure-{number}" for number in (3, 4, 5, 6, 8, 9, 10, 12)]


@pytest.mark.parametrize(
    ("table", "graphs", "clients", "kind", "spots"),
    [
        (
            1,
            *(HOMOPHILOUS, DISJOINT, "disjoint"),
            {
                ("Local", "Cora", "5"): (81.30, 0.21),
                ("FedSage+", "Cora", "20"): (57.97, 12.60),
                ("FedSSA", "ogbn-arxiv", "20"): (68.77, 0.13),
                ("AdaFGL", "Amazon-Photo", "10"): (89.85, 0.83),
                ("Local", "average", "average"): (79.57, None),
                ("FedSSA", "average", "average"): (83.53, None),
            },
        ),
        (
            2,
            *(HETEROPHILOUS, DISJOINT, "disjoint"),
            {
                ("Local", "Roman-empire", "5"): (33.65, 0.13),
                ("FedPer", "Tolokers", "10"): (54.97, 13.23),
                ("FedSSA", "Questions", "20"): (65.74, 0.07),
                ("FedSage+", "Minesweeper", "5"): (77.74, 0.00),
                ("FedGTA", "average", "10"): (57.29, None),
                ("FedSSA", "average", "average"): (67.34, None),
            },
        ),
        (
            6,
            *(HOMOPHILOUS, OVERLAPPING, "overlapping"),
            {
                ("Local", "Cora", "10"): (73.98, 0.25),
                ("FedSage+", "Cora", "50"): (55.48, 11.5),
                ("FedTAD", "Amazon-Computer", "10"): (79.09, 5.63),
                ("FedSSA", "ogbn-arxiv", "50"): (65.73, 0.07),
                ("FedIIH", "average", "average"): (81.01, None),
            },
        ),
        (
            7,
            *(HETEROPHILOUS, OVERLAPPING, "overlapping"),
            {
                ("Local", "Roman-empire", "10"): (39.47, 0.03),
                ("GCFL", "Minesweeper", "50"): (66.93, 1.34),
                ("FED-PUB", "Questions", "10"): (65.39, 2.44),
                ("FedSSA", "Questions", "50"): (64.94, 0.12),
                ("FedPer", "average", "50"): (41.80, None),
                ("FedSSA", "average", "average"): (63.90, None),
            },
        ),
    ],
)
def test_main_tables(table, graphs, clients, kind, spots):
    study = sound_study(f"fedssa-table-{table}", len(METHODS) * len(graphs) * len(clients))
    averages = 1 if graphs == HOMOPHILOUS else 4
    numbers = sound_numbers(study, len(METHODS) * (len(graphs) * len(clients) + averages))
    assert labels(numbers, "method") == METHODS
    assert labels(numbers, "dataset") == graphs
    assert labels(numbers, "clients") == clients
    for (method, dataset, count), value in spots.items():
        assert printed(numbers, method=method, dataset=dataset, clients=count) == value
    assert all((one.std >= 0) != one.is_average for one in numbers)
    assert study.tuned
    assert study.others
    assert study.seeds == 10
    assert {study.options_at(at)["partition"] for at in study.places()} == {kind}


def test_the_one_wrong_average_says_so():
    off = [one for one in read_published(sound_study("fedssa-table-2", 195)) if one.note.startswith("misprint")]
    assert [(one.at["method"], one.at["dataset"], one.at["clients"], one.mean) for one in off] == [
        ("FedSSA", "average", "20", 66.10)
    ]


def test_table_8():
    study = sound_study("fedssa-table-8", 4 * 11 * 6)
    numbers = sound_numbers(study, 4 * 11 * 6)
    assert labels(numbers, "variant") == VARIANTS
    assert labels(numbers, "dataset") == HOMOPHILOUS | HETEROPHILOUS
    disjoint, overlapping = "Non-overlapping", "Overlapping"
    for place, value in {
        ("w/o structural", "Cora", disjoint, "5"): (80.07, 0.50),
        ("w/o semantic", "Roman-empire", overlapping, "10"): (60.48, 0.77),
        ("w/o both", "Questions", overlapping, "50"): (60.49, 0.37),
        ("FedSSA", "Tolokers", disjoint, "20"): (70.88, 0.12),
        ("w/o semantic", "ogbn-arxiv", disjoint, "10"): (66.13, 0.50),
    }.items():
        assert (
            printed(numbers, **dict(zip(("variant", "dataset", "partition", "clients"), place, strict=True))) == value
        )


@pytest.mark.parametrize(("table", "whole"), [(8, "FedSSA"), (9, "single Gaussian approximation")])
def test_whole_fedssa_is_printed_alike_in_all_tables_but_for_one_cell(table, whole):
    main = {}
    for number in (1, 2, 6, 7):
        study = sound_study(f"fedssa-table-{number}", 234 if number in (1, 6) else 195)
        kind = "Non-overlapping" if number in (1, 2) else "Overlapping"
        for one in read_published(study):
            if one.at["method"] == "FedSSA" and not one.is_average:
                main[one.at["dataset"], kind, one.at["clients"]] = (one.mean, one.std)
    study = sound_study(f"fedssa-table-{table}", 264 if table == 8 else 24)
    again = {
        (one.at["dataset"], one.at["partition"], one.at["clients"]): (one.mean, one.std)
        for one in read_published(study)
        if one.at["variant"] == whole
    }
    differing = [place for place, value in again.items() if value != main[place]]
    assert differing == ([("Tolokers", "Non-overlapping", "20")] if table == 8 else [])


def test_table_9():
    study = sound_study("fedssa-table-9", 2 * 2 * 6)
    numbers = sound_numbers(study, 2 * 2 * 6)
    single, mixture = "single Gaussian approximation", "GMM-based approximation"
    assert labels(numbers, "variant") == {single, mixture}
    assert labels(numbers, "dataset") == {"Cora", "Roman-empire"}
    for place, value in {
        (single, "Cora", "Non-overlapping", "5"): (84.67, 0.05),
        (mixture, "Cora", "Overlapping", "50"): (78.69, 0.17),
        (mixture, "Roman-empire", "Non-overlapping", "10"): (67.04, 0.17),
        (mixture, "Roman-empire", "Overlapping", "50"): (62.91, 0.21),
    }.items():
        assert (
            printed(numbers, **dict(zip(("variant", "dataset", "partition", "clients"), place, strict=True))) == value
        )


def test_table_10():
    study = sound_study("fedssa-table-10", 12 * 2 * 6)
    numbers = sound_numbers(study, 13 * 2 * 6)
    assert labels(numbers, "method") == METHODS - {"Local"}
    assert labels(numbers, "dataset") == {"Cora", "Roman-empire"}
    for place, seconds in {
        ("FedAvg", "Cora", "Non-overlapping", "5"): 5.51,
        ("FED-PUB", "Cora", "Overlapping", "50"): 147.84,
        ("FedSage+", "Roman-empire", "Overlapping", "30"): 47.42,
        ("FedSSA", "Roman-empire", "Overlapping", "50"): 24.78,
        ("average", "Roman-empire", "Overlapping", "50"): 42.86,
    }.items():
        at = dict(zip(("method", "dataset", "partition", "clients"), place, strict=True))
        assert printed(numbers, "seconds", **at) == (seconds, None)
    assert study.alone
    assert study.better == {"seconds": "lower"}


@pytest.mark.parametrize("table", [8, 9, 10])
def test_each_cut_has_its_own_numbers_of_clients(table):
    study = sound_study(f"fedssa-table-{table}", {8: 264, 9: 24, 10: 144}[table])
    for kind, clients in {"Non-overlapping": DISJOINT, "Overlapping": OVERLAPPING}.items():
        assert {at["clients"] for at in study.places() if at["partition"] == kind} == clients


@pytest.mark.parametrize(("figure", "places"), [(3, 8), (4, 26), (5, 21), (6, 6)])
def test_figures(figure, places):
    study = sound_study(f"fedssa-figure-{figure}", places)
    assert read_published(study) == []
    for one in study.figures:
        assert any(all(at[axis] in some for axis, some in one.where.items()) for at in study.places())


def test_figure_5_varies_one_thing_at_a_time():
    study = sound_study("fedssa-figure-5", 21)
    usual = {"node_clusters": 3, "structure_clusters": 3, "l1": 0.001, "l2": 0.001}
    changed = [sum(study.options_at(at)["settings"][name] != usual[name] for name in usual) for at in study.places()]
    assert sorted(changed) == [0] + [1] * 20
    for figure, values in zip(study.figures, (7, 7, 5, 5), strict=True):
        drawn = [at for at in study.places() if all(at[axis] in some for axis, some in figure.where.items())]
        assert len(drawn) == values
        assert figure.x is not None
        assert len({at[figure.x] for at in drawn}) == values


@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        ("FedSSA", {}),
        ("w/o structural", {"structural": False}),
        ("w/o semantic", {"semantic": False}),
        ("w/o both", {"semantic": False, "structural": False}),
    ],
)
def test_what_variants_leave_out(variant, settings):
    for name in ("fedssa-table-8", "fedssa-figure-3", "fedssa-figure-6"):
        study = sound_study(name, {"8": 264, "3": 8, "6": 6}[name[-1]])
        for at in study.places():
            if at["variant"] == variant:
                assert study.options_at(at).get("settings", {}) == settings
