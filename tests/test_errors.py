"""What a user reads who gave us something we cannot use."""

from __future__ import annotations

import pytest

from fedquilt.errors import FedquiltError, unknown


@pytest.mark.parametrize(
    ("name", "near"),
    [("fedpup", "fedpub"), ("fedavgg", "fedavg"), ("fed-prox", "fedprox"), ("locla", "local")],
)
def test_an_unknown_name_suggests_the_nearest(name: str, near: str) -> None:
    error = unknown("method", name, ["local", "fedavg", "fedprox", "fedpub"])
    assert isinstance(error, FedquiltError)
    assert str(error) == f"There is no method '{name}'; did you mean '{near}'?"


def test_a_name_like_no_other_lists_them_all_in_order() -> None:
    error = unknown("dataset", "xyz", {"pubmed": 1, "cora": 2})
    assert str(error) == "There is no dataset 'xyz'; choose one of: cora, pubmed."


def test_bad_input_is_not_mistaken_for_a_defect() -> None:
    assert not issubclass(FedquiltError, (ValueError, RuntimeError))
