"""FedHERO's studies and printed numbers: whole, sound, and a few of each table as read by eye."""

from __future__ import annotations

import pytest

from fedquilt.runs.config import RunConfig
from fedquilt.studies.catalogue_files import study_names
from fedquilt.studies.published import read_published
from support.published import labels, printed, sound_numbers, sound_study

METHODS = {"Local", "FedAvg", "FedPub", "FedStar", "GCFL", "FedLit", "FedSage", "FedHERO"}
CUTS = {f"METIS M={clients}" for clients in (3, 5, 7, 9, 30, 40, 50)} | {"Louvain"}
TWO = {"Squirrel", "Chameleon"}


def test_all_studies_are_there():
    names = [name.removeprefix("fedhero-") for name in study_names() if name.startswith("fedhero-")]
    tables = [f"table-{number}" for number in ("1", "2", "3", "3-copies", "4", "5", "7", "8", "9")]
    figures = ["figure-2-latent", "figure-3", "figure-4", "figure-5", "figure-5-links"]
    assert names == [*tables, "open-choices", *figures, *(f"figure-{number}" for number in (6, 8, 9))]


@pytest.mark.parametrize(
    ("name", "places"),
    [
        *(
            ("table-1", 8),
            ("table-3", 128),
            ("table-3-copies", 64),
            ("table-4", 24),
            ("table-5", 24),
            ("table-8", 16),
            ("table-9", 8),
        ),
        *(("figure-3", 24), ("figure-4", 16), ("figure-5", 32), ("figure-8", 16), ("figure-9", 68)),
    ],
)
def test_five_folds_of_200_rounds(name, places):
    study = sound_study(f"fedhero-{name}", places)
    assert study.seeds == 5
    runs = [RunConfig.build(study.options_at(at)) for at in study.places()]
    assert {(run.split, run.rounds, run.epochs) for run in runs} == {("5fold", 200, None)}
    # The papers say nothing of copies: their tables have them apart.
    kept = {run.keep_copies for run in runs if run.dataset in ("squirrel", "chameleon")}
    assert kept <= {"neighbours" if name.endswith("-copies") else "never"}


def test_alone_or_together():
    numbers = sound_numbers(sound_study("fedhero-table-1", 8), 8)
    assert labels(numbers, "method") == {"Local", "FedAvg"}
    assert labels(numbers, "dataset") == TWO | {"PubMed", "Citeseer"}
    assert printed(numbers, method="Local", dataset="Squirrel") == (32.92, 1.94)
    assert printed(numbers, method="Local", dataset="Citeseer") == (67.89, 0.54)
    assert printed(numbers, method="FedAvg", dataset="Chameleon") == (38.65, 2.19)
    assert printed(numbers, method="FedAvg", dataset="PubMed") == (87.08, 0.01)


def test_main_table():
    study = sound_study("fedhero-table-3", 128)
    assert study.tuned
    assert study.others
    numbers = sound_numbers(study, 128)
    assert labels(numbers, "method") == METHODS
    assert labels(numbers, "dataset") == TWO | {"Actor", "Flickr"}
    assert labels(numbers, "partition") == CUTS
    spots = {
        ("Local", "Squirrel", "METIS M=5"): (31.32, 1.21),
        ("FedAvg", "Flickr", "METIS M=30"): (42.45, 0.2),
        ("FedStar", "Squirrel", "METIS M=9"): (33.53, 0.91),
        ("FedLit", "Chameleon", "Louvain"): (36.67, 5.06),
        ("GCFL", "Actor", "METIS M=7"): (31.63, 1.23),
        ("FedSage", "Flickr", "Louvain"): (50.37, 0.56),
        ("FedHERO", "Chameleon", "METIS M=5"): (54.06, 0.56),
        ("FedHERO", "Flickr", "Louvain"): (50.45, 0.25),
    }
    for (method, dataset, partition), expected in spots.items():
        assert printed(numbers, method=method, dataset=dataset, partition=partition) == expected


def test_copies_kept_together_is_the_same_table_for_two_graphs():
    study, whole = sound_study("fedhero-table-3-copies", 64), sound_study("fedhero-table-3", 128)
    numbers, all_numbers = sound_numbers(study, 64), sound_numbers(whole, 128)
    assert [n for n in all_numbers if n.at["dataset"] in TWO] == numbers
    assert labels(numbers, "dataset") == TWO
    for at in study.places():
        together, apart = study.options_at(at), whole.options_at(at)
        assert (together.pop("keep_copies"), apart.pop("keep_copies")) == ("neighbours", "never")
        assert together == apart


def test_table_1_is_table_3_s_louvain_cut():
    first = sound_numbers(sound_study("fedhero-table-1", 8), 8)
    third = sound_numbers(sound_study("fedhero-table-3", 128), 128)
    for method in ("Local", "FedAvg"):
        for dataset in TWO:
            at = {"method": method, "dataset": dataset}
            assert printed(first, **at) == printed(third, **at, partition="Louvain")


def test_structure_learners():
    numbers = sound_numbers(sound_study("fedhero-table-4", 24), 24)
    assert len(labels(numbers, "variant")) == 6
    assert labels(numbers, "dataset") == TWO
    assert labels(numbers, "partition") == {"METIS M=7", "METIS M=9", "Louvain"}
    spots = {
        ("FedHERO_cos", "Squirrel", "METIS M=9"): (34.65, 0.69),
        ("FedHERO_gat", "Chameleon", "Louvain"): (53.26, 2.43),
        ("FedHERO+GLCN", "Chameleon", "METIS M=7"): (52.18, 3.63),
        ("FedHERO", "Squirrel", "Louvain"): (38.00, 0.92),
    }
    for (variant, dataset, partition), expected in spots.items():
        assert printed(numbers, variant=variant, dataset=dataset, partition=partition) == expected


def test_sharing():
    study = sound_study("fedhero-table-5", 24)
    numbers = sound_numbers(study, 24)
    assert labels(numbers, "channels") == {"one channel", "DC"}
    assert labels(numbers, "variant") == {"FedHERO_none", "FedHERO_all", "FedHERO_gcn", "FedHERO"}
    assert labels(numbers, "partition") == {"METIS M=7", "Louvain"}
    spots = {
        ("one channel", "FedHERO_none", "Squirrel", "METIS M=7"): (32.53, 0.66),
        ("one channel", "FedHERO_all", "Chameleon", "Louvain"): (44.12, 1.98),
        ("DC", "FedHERO_none", "Squirrel", "Louvain"): (36.25, 2.96),
        ("DC", "FedHERO_gcn", "Chameleon", "METIS M=7"): (42.27, 1.67),
        ("DC", "FedHERO", "Squirrel", "METIS M=7"): (37.83, 1.02),
    }
    for (channels, variant, dataset, partition), expected in spots.items():
        assert printed(numbers, channels=channels, variant=variant, dataset=dataset, partition=partition) == expected
    (noted,) = [one for one in numbers if one.note]
    assert noted.mean == 37.83


def test_overlapping_clients():
    study = sound_study("fedhero-table-8", 16)
    assert study.tuned
    assert study.others
    numbers = sound_numbers(study, 16)
    assert labels(numbers, "method") == METHODS
    assert labels(numbers, "dataset") == {"Flickr", "Actor"}
    assert printed(numbers, method="Local", dataset="Flickr") == (55.70, 0.25)
    assert printed(numbers, method="FedHERO", dataset="Flickr") == (56.74, 0.30)
    assert printed(numbers, method="FedStar", dataset="Actor") == (27.98, 0.77)
    assert printed(numbers, method="FedHERO", dataset="Actor") == (43.46, 1.11)


def test_latent_neighbours():
    numbers = sound_numbers(sound_study("fedhero-table-9", 8), 8)
    assert labels(numbers, "latent") == {"Bernoulli", "top k"}
    assert labels(numbers, "dataset") == TWO
    assert printed(numbers, latent="Bernoulli", dataset="Squirrel", partition="Louvain") == (36.97, 4.43)
    assert printed(numbers, latent="Bernoulli", dataset="Chameleon", partition="METIS M=7") == (48.82, 3.52)
    assert printed(numbers, latent="top k", dataset="Squirrel", partition="METIS M=7") == (36.08, 0.87)
    assert printed(numbers, latent="top k", dataset="Chameleon", partition="Louvain") == (55.63, 2.00)


@pytest.mark.parametrize(
    ("number", "places", "kinds"),
    [(3, 24, ["bars"]), (4, 16, ["convergence"]), (5, 32, ["bars"]), (8, 16, ["lines"]), (9, 68, ["lines"] * 4)],
)
def test_figures(number, places, kinds):
    study = sound_study(f"fedhero-figure-{number}", places)
    assert [figure.kind for figure in study.figures] == kinds
    assert read_published(study) == []


def test_convergence_is_that_of_the_main_table():
    drawn, main = sound_study("fedhero-figure-4", 16), sound_study("fedhero-table-3", 128)
    tabled = [main.options_at(at) for at in main.places()]
    assert all(drawn.options_at(at) in tabled for at in drawn.places())


def test_graphs_that_come_in_pieces_keep_them():
    pieces = sound_study("fedhero-figure-3", 24)
    kinds = {at["dataset"]: pieces.options_at(at)["partition"] for at in pieces.places()}
    assert kinds == {"syn-cora": "natural", "ieee-fraud": "natural", "credit": "disjoint"}


def test_each_panel_of_figure_9_has_the_default():
    study = sound_study("fedhero-figure-9", 68)
    panels = [figure.where["setting"] for figure in study.figures]
    defaults = ["lambda=0.1", "mu=0.1", "alpha=0.2", "N_H=4"]
    assert all(default in panel for default, panel in zip(defaults, panels, strict=True))
    assert sum(len(panel) for panel in panels) == len(study.axes["setting"])


def test_homophily_of_the_parts():
    numbers = sound_numbers(sound_study("fedhero-table-7", 8), 12)
    assert labels(numbers, "partition") == {"METIS", "Louvain"}
    assert printed(numbers, value="homophily", partition="METIS", dataset="Chameleon") == (0.26, 0.05)
    assert printed(numbers, value="homophily", partition="Louvain", dataset="Actor") == (0.19, 0.04)
    assert printed(numbers, value="graph_homophily", partition="METIS", dataset="Actor")[0] == 0.22


@pytest.mark.parametrize(
    ("name", "places"),
    [("table-2", 21), ("figure-6", 12), ("figure-5-links", 32), ("figure-2-latent", 35), ("open-choices", 45)],
)
def test_studies_of_what_the_paper_does_not_number(name, places):
    assert read_published(sound_study(f"fedhero-{name}", places)) == []
