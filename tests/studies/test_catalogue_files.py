"""The files of the studies that come with fedquilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.studies.catalogue_files import common_candidates, published_path, study_names
from fedquilt.studies.spec import find_study
from support.tiny_studies import write_study

SHIPPED: dict[str, tuple[list[int], list[int]]] = {
    "fedpub": ([*range(1, 13)], [3, 4, 5, 6, 7, 8, 9, 12]),
    "fediih": ([*range(1, 12)], [3, 4, 40]),
    "fedsheafhn": ([1, 2, 3, 4, 7, 8], [2, 3, 4, 5]),
    "fedhero": ([1, 2, 3, 4, 5, 7, 8, 9], [3, 4, 5, 6, 8, 9]),
    "fedssa": ([1, 2, 6, 7, 8, 9, 10], [3, 4, 5, 6]),
}


def test_every_method_has_as_many_common_candidates() -> None:
    counts = {name: len(some) for name, some in common_candidates().items()}
    assert min(counts.values()) > 1
    assert len({len(some) for name, some in common_candidates().items() if name != "majority"}) == 1, counts


def test_every_table_and_figure_of_the_papers_is_there() -> None:
    wanted = {
        f"{paper}-{kind}-{number}"
        for paper, both in SHIPPED.items()
        for kind, some in zip(("table", "figure"), both, strict=True)
        for number in some
    }
    assert wanted <= set(study_names())
    assert len(study_names()) >= 66


def test_the_order_of_studies_is_tables_then_figures_by_number() -> None:
    pub = [name for name in study_names() if name.startswith("fedpub-")]
    assert pub == study_names()[: len(pub)]
    tables = [name for name in pub if "-table-" in name]
    assert tables == pub[: len(tables)]
    numbers = [int(name.split("-")[2]) for name in tables]
    assert numbers == sorted(numbers)


def test_published_numbers_lie_beside_a_users_file(tmp_path: Path) -> None:
    name = write_study(tmp_path)
    assert published_path(name) == tmp_path / "tiny.csv"


@pytest.mark.parametrize("name", study_names())
def test_every_shipped_study_loads_and_says_what_it_shows(name: str) -> None:
    study = find_study(name)
    assert study.name == name
    assert study.title.partition(": ")[2]
    assert list(study.places())
    assert study.claim.endswith(".") if study.paper in SHIPPED else study.question.endswith("?")
