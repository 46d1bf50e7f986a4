"""Uploads as whole numbers: exact sums, clipping, and sums that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.federation.secure.fixed_point import MAX_COUNT, FixedPoint, vector_length
from fedquilt.messages.message import TensorSpec

SPECS = (TensorSpec("w*", "Weights."), TensorSpec("n", "A count.", count=True))


def test_a_sum_is_that_of_the_rounded_numbers() -> None:
    fixed, clients = FixedPoint(10, 64.0), 10
    torch.manual_seed(0)
    each = [{"w": torch.randn(1, 3, 2).double() * 50, "n": torch.rand(1).double() * 900} for _ in range(clients)]
    total = np.add.reduce([fixed.encode(e, m) for m, e in enumerate(each)], axis=0, dtype=np.uint64)
    sums, clipped = fixed.decode(total, each[0])
    assert clipped == 45
    assert sums["w"].shape == (3, 2)
    assert sums["n"].shape == ()
    for name, found in sums.items():
        exact = sum(e[name][0] for e in each)
        assert float((found - exact).abs().max()) <= clients * fixed.step / 2 + 1e-12
    assert fixed.step < 1e-9
    assert vector_length(each[0]) == len(total) == 8


@pytest.mark.parametrize("range", [1.0, 64.0, 2.0**20])
@pytest.mark.parametrize("clients", [3, 10, 1000])
def test_the_largest_sum_fits(range: float, clients: int) -> None:
    fixed = FixedPoint(clients, range)
    largest = torch.full((1, 1), range * MAX_COUNT * 1.001).double()  # with Quilt's floor
    total = fixed.encode({"w": -largest}, 0) * np.uint64(clients)
    number = int(total.view(np.int64)[0])
    assert number * fixed.step == pytest.approx(-clients * float(largest), rel=1e-9)


def test_numbers_outside_the_range_are_cut_and_counted() -> None:
    upload = {"w": torch.tensor([[1.0, -70.0, 1e30]]), "n": torch.tensor([3e6])}
    within, outside = FixedPoint(3, 64.0).clipped(upload, SPECS)
    assert within["w"].tolist() == [[1.0, -64.0, 64.0]]
    assert within["n"].tolist() == [MAX_COUNT]
    assert outside == 3


def test_a_sum_that_cannot_be_is_refused() -> None:
    fixed, form = FixedPoint(3, 64.0), {"w": torch.zeros(1, 4)}
    good = fixed.encode({"w": torch.ones(1, 4)}, 0)
    fixed.decode(good, form)
    for place in (0, 4):
        bad = good.copy()
        bad[place] = 2**63 - 1
        with pytest.raises(ValueError, match="larger than any sites can have sent"):
            fixed.decode(bad, form)
