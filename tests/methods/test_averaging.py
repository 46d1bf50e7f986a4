"""Weighted means of stacks, patch by patch and for each receiver, against loops."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging, patch_mean, weighted_mean
from support.clients import assert_near


def test_weighted_mean() -> None:
    stacked = torch.tensor([[[1.0, 2.0]], [[3.0, 6.0]]])
    assert weighted_mean(stacked, torch.tensor([1.0, 3.0])).tolist() == [[2.5, 5.0]]
    assert WEIGHTED_MEAN.average(stacked, torch.tensor([1.0, 3.0])).tolist() == [[2.5, 5.0]]
    assert WEIGHTED_MEAN.average(stacked).tolist() == [[2.0, 4.0]]
    assert WEIGHTED_MEAN.total(stacked).tolist() == [[4.0, 8.0]]


@given(
    seed=st.integers(0, 999),
    clients=st.integers(1, 4),
    patches=st.integers(1, 4),
    rest=st.sampled_from([(), (3,), (2, 3)]),
)
def test_each_patch_is_averaged_over_those_with_evidence(
    seed: int, clients: int, patches: int, rest: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(seed)
    stack, seen = rng.standard_normal((clients, patches, *rest)), rng.uniform(0.01, 5, (clients, patches))
    found = patch_mean(torch.from_numpy(stack), torch.from_numpy(seen))
    for p in range(patches):
        expected = sum(seen[m, p] * stack[m, p] for m in range(clients)) / sum(seen[m, p] for m in range(clients))
        assert_near(found[p], torch.tensor(expected), 1e-12)


def test_a_patch_without_evidence_is_averaged_by_the_floor() -> None:
    stack = torch.tensor([[[1.0], [4.0]], [[3.0], [8.0]]])
    evidence, floor = torch.tensor([[0.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0], [3.0]])
    assert_near(WEIGHTED_MEAN.average_patches(stack, evidence, floor), torch.tensor([[2.5], [(3 * 4 + 3 * 8) / 6]]))


def test_each_receiver_has_an_average_of_its_own() -> None:
    stream = torch.Generator().manual_seed(0)
    stack, share = torch.rand(4, 3, 2, generator=stream), torch.rand(5, 4, generator=stream)
    for receiver, mixed in enumerate(WEIGHTED_MEAN.mix(share, stack)):
        assert_near(mixed, sum((s * one for s, one in zip(share[receiver], stack, strict=True)), torch.zeros(3, 2)))


def test_factors_in_one_product_are_factors_one_by_one() -> None:
    stream = torch.Generator().manual_seed(1)
    stack, share = torch.rand(4, 3, 2, 5, generator=stream), torch.rand(2, 6, 4, generator=stream)
    assert_near(WEIGHTED_MEAN.mix_factors(share, stack), Averaging.mix_factors(WEIGHTED_MEAN, share, stack))
