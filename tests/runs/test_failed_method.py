"""Which errors are one method's, which end a comparison, and the row of a method that failed."""

from __future__ import annotations

import errno

import pytest

from fedquilt.errors import DivergedError, FedquiltError, MachineLimitError, RefusedError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.failed_method import FAILED, FailedMethod, named, raise_where_all, with_failed


def test_why_a_method_failed() -> None:
    assert (
        FailedMethod.of("a", DivergedError("no numbers", advice="wait")).why == "Training diverged: no numbers; wait."
    )
    assert FailedMethod.of("a", MemoryError()).why.startswith("Memory ran out; use smaller cohorts")
    assert FailedMethod.of("a", KeyError("x")).why.startswith(
        "something went wrong inside: KeyError: 'x'; run it alone"
    )


@pytest.mark.parametrize("error", [RefusedError("another graph."), OSError(errno.ENOSPC, "full")], ids=str)
def test_what_every_method_would_meet_ends_the_comparison(error: Exception) -> None:
    with pytest.raises(type(error)):
        FailedMethod.of("a", error)


def test_an_error_does_not_hold_what_the_failed_training_held() -> None:
    class Large:
        alive = 0

        def __init__(self) -> None:
            Large.alive += 1

        def __del__(self) -> None:
            Large.alive -= 1

    def train() -> None:
        large = Large()
        raise MemoryError(str(large))

    try:
        train()
    except MemoryError as error:
        failed = FailedMethod.of("a", error)
    assert failed.error is not None
    assert Large.alive == 0


def test_an_error_may_be_its_own_cause() -> None:
    error = FedquiltError("No.")
    error.__cause__ = error
    assert FailedMethod.of("a", error).why == "No."


def test_rows_are_in_the_order_of_the_methods_and_filled_from_the_others() -> None:
    asked = {"dataset": "x", "partition": "disjoint", "clients": 10}  # a column of the table cuts it otherwise
    configs = [{"method": "a", **asked}, {"method": "b", **asked}]
    other = {"method": "b", "dataset": "X", "partition": "natural", "clients": 3, "rounds": 5, "metric": "auc"}
    rows = with_failed(configs, [other], {"a": FailedMethod("a", "No.")})
    assert [row["method"] for row in rows] == ["a", "b"]
    assert rows[0] | {"seeds": []} == rows[0]
    assert (rows[0]["dataset"], rows[0]["partition"], rows[0]["clients"]) == ("X", "natural", 3)
    assert (rows[0][FAILED], rows[0]["test_mean"], rows[0]["metric"], rows[0]["rounds"]) == ("No.", None, "auc", 5)


def test_all_failed_is_an_error_of_the_first_kind_that_fits() -> None:
    configs = [RunConfig.build({"method": name}) for name in ("local", "fedavg")]
    one = {"local": FailedMethod("local", "No.", FedquiltError("No."))}
    raise_where_all(configs, one)
    with pytest.raises(FedquiltError, match=r"^2 methods failed: local: No; fedavg: Too large\.$"):
        raise_where_all(
            configs, one | {"fedavg": FailedMethod("fedavg", "Too large.", MachineLimitError("Too large."))}
        )
    assert named(list(one.values())) == "local failed: No."
