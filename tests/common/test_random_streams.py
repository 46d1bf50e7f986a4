"""Every random draw belongs to someone, and is the same whenever and wherever it is drawn."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.common.random_streams import derive, numpy_stream, torch_stream

owners = st.lists(st.one_of(st.text(max_size=8), st.integers(-(10**6), 10**6)), max_size=4)


def test_derived_numbers_are_pinned() -> None:
    """Published results depend on them: a change here changes every run."""
    assert derive(0, "model") == 7974472201417454062
    assert derive(7, "client", 3, "dropout") == 4033285479162515884
    assert derive(-1, "server", "participants", 12) == 5379332837525272058


def test_another_process_derives_the_same() -> None:
    """Python's own hash of a string differs from process to process; this one must not."""
    code = "from fedquilt.common.random_streams import derive; print(derive(3, 'split', 0))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(found) == derive(3, "split", 0)


@given(seed=st.integers(-(2**70), 2**70), owner=owners)
def test_derived_numbers_fit_every_generator(seed: int, owner: list[str | int]) -> None:
    number = derive(seed, *owner)
    assert 0 <= number < 2**63
    assert number == derive(seed, *owner)


def test_owners_are_told_apart() -> None:
    known = [
        (0,),
        (1,),
        (0, "1"),
        (0, 1),
        (0, "a"),
        (0, "a", "b"),
        (0, "b", "a"),
        (0, "ab"),
        (0, "a", 1),
        (0, "a", "1"),
        (0, "a", 11),
        (0, "a", 1, 1),
        (0, "client", 1, "round", 2),
        (0, "client", 2, "round", 1),
        (0, ""),
        (0, "", ""),
    ]
    assert len({derive(*owner) for owner in known}) == len(known)


def test_many_owners_do_not_collide() -> None:
    numbers = {derive(seed, "client", i, "round", r) for seed in range(5) for i in range(40) for r in range(40)}
    assert len(numbers) == 5 * 40 * 40


def test_streams_are_equal_across_calls() -> None:
    assert np.array_equal(numpy_stream(3, "partition").random(50), numpy_stream(3, "partition").random(50))
    draws = [torch.rand(50, generator=torch_stream(3, "model")) for _ in range(2)]
    assert torch.equal(*draws)


def test_streams_of_different_owners_differ() -> None:
    assert not np.array_equal(numpy_stream(3, "partition").random(5), numpy_stream(4, "partition").random(5))
    assert not np.array_equal(numpy_stream(3, "partition").random(5), numpy_stream(3, "split").random(5))
    assert not torch.equal(
        torch.rand(5, generator=torch_stream(3, "model")), torch.rand(5, generator=torch_stream(3, "server"))
    )


def test_streams_leave_the_global_generators_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    torch.rand(9, generator=torch_stream(1, "model"))
    assert torch.equal(torch.rand(3), expected)


def test_torch_streams_are_on_the_cpu() -> None:
    assert torch_stream(0, "model").device == torch.device("cpu")


@pytest.mark.parametrize("seed", [0, 1, 2**62])
def test_a_numpy_seed_is_the_same_seed(seed: int) -> None:
    assert derive(np.int64(seed), "model") == derive(seed, "model")


def test_a_part_cannot_stand_for_two() -> None:
    assert derive(0, "a/str:b") != derive(0, "a", "b")
    assert derive(0, "astr:1:b") != derive(0, "a", "b")


@given(one=owners, two=owners)
def test_no_two_owners_are_written_alike(one: list[str | int], two: list[str | int]) -> None:
    assert (derive(0, *one) == derive(0, *two)) == (one == two)


def test_a_numpy_part_is_the_same_part() -> None:
    assert derive(0, "client", np.int64(3)) == derive(0, "client", 3)
    assert derive(0, np.int32(3)) == derive(0, 3) != derive(0, "3")
