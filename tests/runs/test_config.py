"""The configuration of a run: one sentence for what is wrong in it, and its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"rouns": 3}, "There is no option 'rouns'; did you mean 'rounds'?"),
        ({"rounds": 0}, "The option rounds=0 is not possible: input should be greater than or equal to 1."),
        ({"seeds": [1, 1]}, "The option seeds=[1, 1] is not possible: a seed is listed twice."),
        ({"rounds": True}, "The option rounds=True is not possible: true and false are no value of it."),
        ({"seeds": [10**400]}, "is not possible: it has more than 64 bits."),
        ({"lr": 1}, "'lr' is a setting of methods ("),
        ({"participation": float("inf")}, "The option participation=inf is not possible: it is not a finite number."),
        ({"dataset": "a\0b"}, "is not possible: it has a NUL character."),
        ({"dataset": "\udcff.npz"}, "is not possible: it has a character that is not text"),
        ({"partition": "x" * 5000}, "is not possible: it has 5,000 characters"),
        ({"settings": {"lr": [[[[[[[[[[1]]]]]]]]]]}}, "is not possible: it is nested too deep."),
        ({"rounds": 10**5000}, "a number of thousands of digits is not possible: it has more than 64 bits."),
        ({"dp_noise": 1.0}, "The option dp_noise=1.0 is not possible: uploads are not clipped"),
        ({"dp_clip": 1.0}, "The option dp_epsilon=None is not possible: dp_clip wants dp_noise beside it"),
        ({"dp_clip": 1.0, "dp_noise": 1.0, "hold_out_clients": 0.5}, "clients that are held out send unprotected"),
        ({"drop_out": 1.0}, "The option drop_out=1.0"),
        ({"stragglers": -0.1}, "The option stragglers=-0.1"),
        ({"join_round": 5}, "no clients do; say which share of them with join_late"),
        ({"leave_round": 5}, "no clients do; say which share of them with leave"),
    ],
)
def test_what_is_wrong_is_one_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError) as caught:
        RunConfig.build(values)
    assert says in str(caught.value)


def test_paths_may_be_given_as_paths(tmp_path: Path) -> None:
    config = RunConfig.build({"data": tmp_path, "partition": tmp_path / "p.npz", "clients_from": None})
    assert (config.data, config.partition) == (str(tmp_path), str(tmp_path / "p.npz"))
    given = RunConfig.build({"clients_from": [tmp_path / "a.npz", str(tmp_path / "b.npz")]})
    assert given.clients_from == [str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]


def test_the_name_is_that_of_the_folder() -> None:
    assert RunConfig().name == "quilt-patchwork-disjoint-10"
    assert RunConfig(dataset="/graphs/mine.npz", partition="cut.npz", clients=None).name == "quilt-mine-cut"
    assert RunConfig(dataset="syn-cora:h=0.30,r=1").name == "quilt-syn-cora-h=0.30,r=1-disjoint-10"


def test_shared_statistics_need_a_use_and_no_noise() -> None:
    assert RunConfig.build({"prepare_statistics": "shared"}).prepare is None
    with pytest.raises(FedquiltError, match="statistics are for prepare=standard only"):
        RunConfig.build({"prepare": "rows", "prepare_statistics": "shared"})
    with pytest.raises(FedquiltError, match="would be sent unprotected; use prepare_statistics=own"):
        RunConfig.build({"prepare_statistics": "shared", "dp_clip": 1.0, "dp_noise": 1.0})
