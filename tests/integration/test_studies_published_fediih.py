"""FedIIH's tables and figures: every place of a study can be run, and the published numbers are those of the paper."""

from __future__ import annotations

import pytest

from fedquilt.studies.published import read_published
from fedquilt.studies.spec import Study, find_study
from support.published import labels, printed, sound_numbers, sound_study

METHODS = {
    *("Local", "FedAvg", "FedProx", "FedPer", "GCFL", "FedGNN"),
    *("FedSage+", "FED-PUB", "FedGTA", "AdaFGL", "FedIIH"),
}
HOMOPHILIC = {"Cora", "CiteSeer", "PubMed", "Amazon-Computer", "Amazon-Photo", "ogbn-arxiv"}
HETEROPHILIC = {"Roman-empire", "Amazon-ratings", "Minesweeper", "Tolokers", "Questions"}
CUTS = {"Non-overlapping", "Overlapping"}
DISJOINT, OVERLAPPING = {"5", "10", "20"}, {"10", "30", "50"}
# Where each table has the cells of FedIIH's main rows: (dataset's kind, cut) -> the main table.
MAIN = {
    (True, "Non-overlapping"): "fediih-table-1",
    (True, "Overlapping"): "fediih-table-2",
    (False, "Non-overlapping"): "fediih-table-3",
    (False, "Overlapping"): "fediih-table-4",
}


@pytest.mark.parametrize(
    ("number", "places", "datasets", "clients"),
    [
        (1, 198, HOMOPHILIC, DISJOINT),
        (2, 198, HOMOPHILIC, OVERLAPPING),
        (3, 165, HETEROPHILIC, DISJOINT),
        (4, 165, HETEROPHILIC, OVERLAPPING),
    ],
)
def test_main_tables(number: int, places: int, datasets: set[str], clients: set[str]) -> None:
    study = sound_study(f"fediih-table-{number}", places)
    assert study.tuned
    assert study.others
    published = sound_numbers(study, 209)
    assert labels(published, "method") == METHODS
    assert labels(published, "dataset") == datasets
    assert labels(published, "clients") == clients
    cells = [one for one in published if not one.is_average]
    assert len(cells) == places
    assert all(one.std >= 0 for one in cells)
    assert len(published) - len(cells) == len(METHODS) * (1 if datasets == HOMOPHILIC else 4)


@pytest.mark.parametrize(
    ("number", "method", "dataset", "clients", "expected"),
    [
        (1, "Local", "Cora", "5", (81.30, 0.21)),
        (1, "FedSage+", "Cora", "20", (57.97, 12.6)),
        (1, "AdaFGL", "ogbn-arxiv", "5", (52.73, 0.19)),
        (1, "FedIIH", "ogbn-arxiv", "20", (68.65, 0.04)),
        (1, "FedIIH", "average", "average", (83.10, None)),
        (2, "Local", "Cora", "10", (73.98, 0.25)),
        (2, "FedSage+", "Cora", "50", (55.48, 11.5)),
        (2, "GCFL", "Amazon-Computer", "10", (89.01, 0.22)),
        (2, "FedIIH", "PubMed", "50", (85.65, 0.12)),
        (2, "FedGTA", "average", "average", (74.40, None)),
        (3, "Local", "Roman-empire", "5", (33.65, 0.13)),
        (3, "FedPer", "Minesweeper", "20", (53.80, 11.40)),
        (3, "GCFL", "Tolokers", "20", (17.53, 0.04)),
        (3, "FedIIH", "Questions", "20", (65.40, 0.07)),
        (3, "FED-PUB", "average", "10", (56.11, None)),
        (4, "Local", "Roman-empire", "10", (39.47, 0.03)),
        (4, "GCFL", "Minesweeper", "50", (57.41, 12.56)),
        (4, "FedGTA", "Questions", "10", (35.56, 5.46)),
        (4, "FedIIH", "Questions", "50", (64.73, 0.35)),
        (4, "AdaFGL", "average", "50", (51.69, None)),
    ],
)
def test_cells_of_the_main_tables(
    number: int, method: str, dataset: str, clients: str, expected: tuple[float, float | None]
) -> None:
    published = read_published(find_study(f"fediih-table-{number}"))
    assert printed(published, method=method, dataset=dataset, clients=clients) == expected


def test_the_one_average_that_is_a_misprint_is_marked() -> None:
    marked = [
        (number, one.at)
        for number in range(1, 5)
        for one in read_published(find_study(f"fediih-table-{number}"))
        if one.note
    ]
    assert marked == [(2, {"method": "FedGTA", "dataset": "average", "clients": "average"})]


@pytest.mark.parametrize(
    ("number", "margin", "second"),
    [(1, 1.51, "FED-PUB"), (2, 1.48, "FED-PUB"), (3, 5.79, "FedSage+"), (4, 4.53, "FedSage+")],
)
def test_the_margins_that_the_text_names(number: int, margin: float, second: str) -> None:
    published = read_published(find_study(f"fediih-table-{number}"))
    best, other = (
        printed(published, method=method, dataset="average", clients="average")[0] for method in ("FedIIH", second)
    )
    assert best - other == pytest.approx(margin, abs=1e-6)


def test_table_5_has_no_numbers_in_the_text() -> None:
    study = sound_study("fediih-table-5", 20)  # with a row of ours
    published = sound_numbers(study, 16, unprinted=16)
    assert labels(published, "variant") == {"w/o HM", "w/o VI", "w/o Dis", "FedIIH"}
    assert labels(published, "dataset") == {"Cora", "Amazon-ratings"}
    assert all(one.note for one in published)
    for one in published:
        if one.at["variant"] == "FedIIH":
            mean, std = main_row(one.at["dataset"], one.at["partition"], "10")
            assert f"{mean:.2f} ± {std:.2f}" in one.note


def test_table_6() -> None:
    study = sound_study("fediih-table-6", 90)  # with a row of ours
    published = sound_numbers(study, 72)
    assert labels(published, "variant") == {"w/o HM", "w/o VI", "w/o Dis", "FedIIH"}
    assert labels(published, "dataset") == (HOMOPHILIC | HETEROPHILIC) - {"Cora", "Amazon-ratings"}
    assert labels(published, "partition") == CUTS
    for variant, dataset, partition, expected in [
        ("w/o HM", "CiteSeer", "Non-overlapping", (74.91, 0.27)),
        ("w/o VI", "Amazon-Photo", "Overlapping", (82.16, 0.56)),
        ("w/o Dis", "Roman-empire", "Overlapping", (42.84, 0.09)),
        ("w/o Dis", "Questions", "Overlapping", (67.52, 0.17)),
    ]:
        assert printed(published, variant=variant, dataset=dataset, partition=partition) == expected
    whole = [one for one in published if one.at["variant"] == "FedIIH"]
    assert len(whole) == 18
    for one in whole:
        assert (one.mean, one.std) == main_row(one.at["dataset"], one.at["partition"], "10"), one.at


@pytest.mark.parametrize(
    ("number", "axis", "levels", "ranges"),
    [
        (7, "tau", range(1, 11), (0.27, 0.30, 0.32, 0.19)),
        (9, "layers", range(1, 7), (0.66, 0.64, 0.36, 0.28)),
        (10, "iterations", range(2, 8), (0.61, 0.60, 0.40, 0.31)),
        (11, "tau", range(1, 11), (0.27, 0.30, 0.32, 0.19)),
    ],
)
def test_sensitivity_tables(number: int, axis: str, levels: range, ranges: tuple[float, ...]) -> None:
    """The ranges are the printed row of the best less the worst; the best is the figure of the main tables."""
    study = sound_study(f"fediih-table-{number}", 4 * len(levels))
    published = sound_numbers(study, 4 * len(levels))
    assert labels(published, axis) == {str(level) for level in levels}
    columns = [(d, p) for d in ("Cora", "Roman-empire") for p in ("Non-overlapping", "Overlapping")]
    for (dataset, partition), expected in zip(columns, ranges, strict=True):
        column = [one for one in published if (one.at["dataset"], one.at["partition"]) == (dataset, partition)]
        means = [one.mean for one in column]
        assert max(means) - min(means) == pytest.approx(expected, abs=1e-6)
        best = max(column, key=lambda one: one.mean)
        clients = "10" if partition == "Non-overlapping" else "30"
        assert (best.mean, best.std) == main_row(dataset, partition, clients)
        assert clients_at(study, best.at) == int(clients)


@pytest.mark.parametrize(
    ("number", "axis", "level", "dataset", "partition", "expected"),
    [
        (7, "tau", "2", "Cora", "Overlapping", (76.52, 0.16)),
        (7, "tau", "9", "Roman-empire", "Overlapping", (63.30, 0.15)),
        (7, "tau", "5", "Cora", "Non-overlapping", (81.65, 0.05)),
        (9, "layers", "1", "Cora", "Non-overlapping", (81.19, 0.27)),
        (9, "layers", "6", "Roman-empire", "Overlapping", (63.04, 0.38)),
        (9, "layers", "5", "Cora", "Overlapping", (76.82, 0.24)),
        (10, "iterations", "2", "Cora", "Non-overlapping", (81.24, 0.50)),
        (10, "iterations", "4", "Roman-empire", "Non-overlapping", (66.16, 0.44)),
        (10, "iterations", "7", "Roman-empire", "Overlapping", (63.12, 0.22)),
        (11, "tau", "1", "Roman-empire", "Non-overlapping", (66.12, 0.25)),
        (11, "tau", "8", "Cora", "Overlapping", (76.79, 0.25)),
        (11, "tau", "10", "Roman-empire", "Overlapping", (63.32, 0.06)),
    ],
)
def test_cells_of_the_sensitivity_tables(
    number: int, axis: str, level: str, dataset: str, partition: str, expected: tuple[float, float]
) -> None:
    published = read_published(find_study(f"fediih-table-{number}"))
    assert printed(published, **{axis: level}, dataset=dataset, partition=partition) == expected


def test_tables_7_and_11_are_the_same_numbers() -> None:
    assert read_published(find_study("fediih-table-7")) == read_published(find_study("fediih-table-11"))


def test_table_8() -> None:
    study = sound_study("fediih-table-8", 36)
    assert study.alone
    published = sound_numbers(study, 36)
    assert labels(published, "method") == {"FedAvg", "FED-PUB", "FedIIH"}
    assert labels(published, "dataset") == {"Cora", "Roman-empire"}
    for method, dataset, partition, clients, seconds in [
        ("FedAvg", "Cora", "Non-overlapping", "5", 20.81),
        ("FED-PUB", "Cora", "Overlapping", "50", 147.84),
        ("FedIIH", "Cora", "Overlapping", "10", 19.67),
        ("FedIIH", "Roman-empire", "Overlapping", "50", 100.10),
    ]:
        at = {"method": method, "dataset": dataset, "partition": partition, "clients": clients}
        assert printed(published, "seconds", **at) == (seconds, None)


def test_figure_3_compares_two_factors_on_twenty_clients() -> None:
    study = sound_study("fediih-figure-3", 6)
    options = study.options_at({"method": "FedIIH", "dataset": "Amazon-ratings"})
    assert (options["settings"], options["clients"], options["partition"]) == ({"factors": 2}, 20, "overlapping")


def test_figure_4_has_every_graph_and_the_papers_numbers_of_factors() -> None:
    study = sound_study("fediih-figure-4", 132)
    assert {level.label for level in study.axes["dataset"]} == HOMOPHILIC | HETEROPHILIC
    assert [level.options["settings"]["factors"] for level in study.axes["factors"]] == [1, 2, 4, 6, 8, 10]


def test_figure_40_goes_from_a_tenth_of_the_clients_to_all() -> None:
    study = sound_study("fediih-figure-40", 120)
    shares = [level.options["participation"] for level in study.axes["participation"]]
    assert shares == [tenths / 10 for tenths in range(1, 11)]
    assert [f"{share:.0%}" for share in shares] == [level.label for level in study.axes["participation"]]


@pytest.mark.parametrize("name", ["fediih-figure-3", "fediih-figure-4", "fediih-figure-40"])
def test_figures_print_no_numbers(name: str) -> None:
    assert read_published(find_study(name)) == []


def main_row(dataset: str, partition: str, clients: str) -> tuple[float, float | None]:
    """What a main table prints for FedIIH."""
    published = read_published(find_study(MAIN[dataset in HOMOPHILIC, partition]))
    return printed(published, method="FedIIH", dataset=dataset, clients=clients)


def clients_at(study: Study, at: dict[str, str]) -> int:
    clients: int = study.options_at(at)["clients"]
    return clients
