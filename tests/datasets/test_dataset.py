"""One entry of the catalogue and its parameters."""

from __future__ import annotations

import pytest

from fedquilt.datasets.dataset import GENERATED, Choice, Dataset, Parameter, whole_number
from fedquilt.errors import FedquiltError
from fedquilt.graphs.protocol import Protocol
from support.graphs import tiny

ENTRY = Dataset(
    "rings",
    "some rings",
    *(4, 4, 3, 2),
    Protocol(),
    generate=lambda **_: tiny(),
    parameters={"nodes": Parameter("4"), "seed": Parameter("0")},
    files=("rings-{nodes}", "ring"),
    parts=lambda parameters: [{**parameters, "nodes": "2"}] * 2 if parameters["nodes"] == "0" else [],
)


def test_a_name_sets_some_parameters_and_the_others_keep_their_defaults() -> None:
    assert ENTRY.choose().name == "rings:nodes=4,seed=0"
    assert ENTRY.choose("seed=03").parameters == {"nodes": "4", "seed": "3"}
    assert ENTRY.choose("nodes=9,").files == ["rings-9", "ring"]


def test_an_entry_without_files_is_stored_under_its_name() -> None:
    plain = Dataset("plain", "no parameters", *(4, 4, 3, 2), Protocol())
    assert (plain.choose().name, plain.choose().files, plain.choose().parts) == ("plain", ["plain"], [])
    assert plain.origin == GENERATED == "generated, no file"


def test_parts_are_choices_of_the_same_dataset() -> None:
    assert ENTRY.choose("seed=1").parts == []
    assert ENTRY.choose("seed=1,nodes=0").parts == [Choice(ENTRY, {"nodes": "2", "seed": "1"})] * 2


def test_wrong_parameters_are_one_sentence() -> None:
    with pytest.raises(FedquiltError, match="'rings' has no parameter 'colour'; write it like rings:nodes=4, seed=0"):
        ENTRY.choose("colour=red")
    with pytest.raises(
        FedquiltError, match="'-1' is not a value for seed of rings; write a whole number, such as seed=1"
    ):
        whole_number("rings", "seed", "-1")
