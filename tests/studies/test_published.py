"""Published numbers: read, checked, reduced to a part of a study."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.studies.published import read_published, within, wrong_averages
from fedquilt.studies.spec import find_study
from support.tiny_studies import PUBLISHED, write_study

HEAD = "method,clients,value,mean,std,note\n"


def test_numbers_are_read_with_their_place_deviation_and_note(tmp_path: Path) -> None:
    name = write_study(tmp_path, published=PUBLISHED)
    local, pub, average = read_published(find_study(name), name)
    assert (local.at, local.value, local.mean, local.std) == ({"method": "Local", "clients": "2"}, "test", 60.0, 1.0)
    assert math.isnan(pub.std)
    assert pub.note == "a misprint"
    assert [one.is_average for one in (local, pub, average)] == [False, False, True]
    assert read_published(find_study(write_study(tmp_path, "none")), str(tmp_path / "none.yaml")) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("method,clients,value,mean\nLocal,2,test,1\n", "Line 2 of the published numbers of tiny has no 'std'."),
        (HEAD + "Local,2,test,1,,\nLoca,2,test,1,,\n", "Line 3 of .*: the axis method has no level 'Loca'."),
        (HEAD + "Local,2,auc,1,,\n", "'auc' is not among the study's values."),
        (HEAD + "Local,2,test,one,,\n", "mean and std must be numbers or empty."),
        (HEAD + "Local,2,test,1,,\nLocal,2,test,2,,\n", "The published numbers of tiny have Local / 2 twice."),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    name = write_study(tmp_path, published=text)
    with pytest.raises(FedquiltError, match=says):
        read_published(find_study(name), name)


@pytest.mark.parametrize("data", [b"\xd1\x00\xff", HEAD.encode() + b"Local,2,test,1,," + b"x" * 200_000])
def test_what_is_no_table_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    name = write_study(tmp_path, published="x")
    (tmp_path / "tiny.csv").write_bytes(data)
    with pytest.raises(FedquiltError, match=r"published numbers in .*tiny.csv are not a CSV file in UTF-8"):
        read_published(find_study(name), name)


def test_an_average_is_in_a_part_only_with_all_that_it_averages(tmp_path: Path) -> None:
    name = write_study(tmp_path, published=HEAD + "Local,2,test,1,,\nLocal,3,test,2,,\nLocal,average,test,1.5,,\n")
    study = find_study(name)
    published = read_published(study, name)
    assert within(study, published) == published
    assert [one.mean for one in within(study.only({"clients": ["3"]}), published)] == [2.0]
    assert within(study.only({"method": ["fedavg"]}), published) == []


def test_a_printed_average_is_checked_up_to_rounding(tmp_path: Path) -> None:
    numbers = "Local,2,test,1,,\nLocal,3,test,2,,\n"
    for average, wrong in (("1.51", []), ("1.52", ["Local / average: printed 1.52, the cells give 1.500"])):
        name = write_study(tmp_path, published=HEAD + numbers + f"Local,average,test,{average},,\n")
        study = find_study(name)
        assert wrong_averages(study, read_published(study, name)) == wrong
    name = write_study(tmp_path, published=HEAD + "Local,average,test,9,,\n")
    assert wrong_averages(study, read_published(study, name)) == ["Local / average is an average of nothing"]
    name = write_study(tmp_path, published=HEAD + numbers + "Local,average,test,9,,a misprint\n")
    assert wrong_averages(study, read_published(study, name)) == []
