"""Statistics of features that cross as sums."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.messages.message import declared
from fedquilt.runs import shared_statistics
from fedquilt.runs.shared_statistics import DOWNLOADS, UPLOADS, shared_preparation

RNG = np.random.default_rng(0)
PARTS = [RNG.normal(mean, scale, (15, 2)).astype(np.float32) for mean, scale in ((50, 10), (80, 3), (10, 1))]


def test_the_preparation_is_that_of_all_nodes_together() -> None:
    """Of up to twenty nodes none is clipped, so that it is mean and deviation of all."""
    how, _ = shared_preparation(PARTS)
    whole = np.concatenate(PARTS).astype(np.float64)
    assert how.centre == pytest.approx(whole.mean(0))
    assert how.scale == pytest.approx(whole.std(0))


def test_a_column_is_kept_only_where_all_clients_have_zeros_and_ones() -> None:
    binary = np.array([[0, 1], [1, 1]], dtype=np.float32)
    other = np.array([[0, 1], [2, 0]], dtype=np.float32)
    assert shared_preparation([binary, other])[0].kept.tolist() == [False, True]


def test_what_crosses_is_declared_and_counted() -> None:
    _, crossed = shared_preparation(PARTS)
    assert set(crossed["up"]) == {spec.name for spec in UPLOADS}
    assert all(declared(DOWNLOADS, name) for name in crossed["down"])
    assert sum(crossed["up"].values()) == 3 * 4 * 2 * 8  # clients, sums, features, bytes
    assert sum(crossed["down"].values()) == 3 * 2 * 2 * 8


def test_a_sum_that_is_not_declared_does_not_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_statistics, "UPLOADS", UPLOADS[1:])
    with pytest.raises(RuntimeError, match="tried to upload 'count'"):
        shared_preparation(PARTS)
