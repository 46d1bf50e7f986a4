from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.cross_check import check_result, check_summary, same

RECORDS: list[dict[str, Any]] = [
    {"round": 0, "val": 40.0, "test": 41.0, "clients": {"test": [40.0, 42.0]}, "bytes_up": {"w": 3}, "bytes_down": {}},
    {
        "round": 1,
        "val": 50.5,
        "test": 51.35,
        "clients": {"test": [50.0, 52.7]},
        "bytes_up": {"w": 3},
        "bytes_down": {"w": 2},
    },
]
SUMMARY: dict[str, Any] = {
    **{"best_round": 1, "val": 50.5, "test": 51.35, "clients_test": [50.0, 52.7]},
    **{"upload_bytes": 6, "download_bytes": 2, "rounds_run": 2, "seconds": 1.0},
}


def check(summary: dict[str, Any], records: list[dict[str, Any]] = RECORDS) -> None:
    check_summary(Path("seed-0/summary.json"), summary, records, "do something")


def test_a_true_summary_is_let_through() -> None:
    check(SUMMARY)
    check({**SUMMARY, "seconds": 99.0})
    check({**SUMMARY, "val": None}, [RECORDS[0], {**RECORDS[1], "val": None}])
    check({"best_round": 1, "test": 51.35}, [{"round": 1, "test": 51.35}])  # an earlier version's
    check(SUMMARY, [])  # without metrics there is nothing to compare with


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"test": 91.35}, "its test is 91.35, and by metrics.jsonl it is 51.35; do something."),
        ({"val": 50.6}, "its val is 50.6"),
        ({"clients_test": [50.0, 92.7]}, "its clients_test is "),
        ({"upload_bytes": 7}, "its upload_bytes is 7"),
        ({"download_bytes": 3}, "its download_bytes is 3"),
        ({"rounds_run": 3}, "its rounds_run is 3"),
        ({"best_round": 0}, "its val is 50.5, and by metrics.jsonl it is 40.0"),
        ({"best_round": 7}, "names a best round that metrics.jsonl does not have"),
    ],
)
def test_each_number_that_was_changed_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FedquiltError) as caught:
        check({**SUMMARY, **change})
    assert str(caught.value).startswith("seed-0/summary.json ")
    assert said in str(caught.value)


def test_a_result_is_compared_with_what_it_should_say() -> None:
    expected = {"method": "fedavg", "test_mean": 51.35, "seeds": [{"seed": 0, "test": 51.35}]}
    check_result(Path("run/result.json"), json.loads(json.dumps(expected)), expected)
    for change, said in (
        ({"test_mean": 91.35}, "its test_mean is 91.35, and by the seeds' summaries it is 51.35"),
        ({"seeds": [{"seed": 0, "test": 91.35}]}, "its seeds is "),
        ({"method": "quilt"}, "its method is quilt"),
        ({"more": 1}, "its more is 1, and by the seeds' summaries it is nothing"),
    ):
        with pytest.raises(FedquiltError, match=said):
            check_result(Path("run/result.json"), {**expected, **change}, expected)


def test_a_result_of_an_earlier_version_may_lack_what_was_added_to_its_seeds() -> None:
    stored: dict[str, Any] = {"seeds": [{"seed": 0, "test": 1.0}]}
    expected: dict[str, Any] = {"seeds": [{"seed": 0, "test": 1.0, "rounds_run": 5}]}
    check_result(Path("run/result.json"), stored, expected)
    for change in ({"rounds_run": 6}, {"test": 2.0}):
        with pytest.raises(FedquiltError, match="its seeds is "):
            check_result(Path("run/result.json"), {"seeds": [stored["seeds"][0] | change]}, expected)


def test_numbers_are_the_same_up_to_rounding() -> None:
    assert same([1, {"a": 0.1 + 0.2}], (1.0, {"a": 0.3}))
    assert same(math.nan, None)  # as JSON has it
    for one, other in ((1, 1.001), (1, True), ("1", 1), (None, 0), ([1], [1, 1]), ({"a": 1}, {"b": 1})):
        assert not same(one, other)
