"""Sums of clipped columns, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.graphs import column_sums
from fedquilt.graphs.column_sums import ColumnSums


def clipped(column: np.ndarray) -> np.ndarray:
    """To its order statistics at 5 and 95 percent, as the docs say."""
    rising = np.sort(column.astype(np.float64))
    beyond = int(0.05 * (len(rising) - 1))
    return np.clip(column.astype(np.float64), rising[beyond], rising[len(rising) - 1 - beyond])


def heavy(nodes: int = 200, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(50, 10, nodes), rng.pareto(1.1, nodes) * 1e4], axis=1).astype(np.float32)


def test_mean_and_deviation_are_those_of_clipped_values() -> None:
    x = heavy()
    mean, deviation = ColumnSums.of(x).mean_and_deviation()
    assert mean == pytest.approx([clipped(column).mean() for column in x.T])
    assert deviation == pytest.approx([clipped(column).std() for column in x.T])


def test_an_outlier_hardly_moves_them() -> None:
    x = heavy()
    before = ColumnSums.of(x).mean_and_deviation()
    x[7, 0] = 1e30
    after = ColumnSums.of(x).mean_and_deviation()
    assert np.allclose(before, after, rtol=0.05)


def test_a_column_that_is_mostly_zero_has_a_deviation_of_its_other_values() -> None:
    x = np.zeros((300, 1), dtype=np.float32)
    x[:6, 0] = [10, 20, 30, 40, 50, 1e9]
    values = np.clip(x[:, 0].astype(float), -70, 70)  # twice the median of the six
    mean, deviation = ColumnSums.of(x).mean_and_deviation()
    assert (mean[0], deviation[0]) == pytest.approx((values.mean(), values.std()))


def test_the_sums_of_clients_add_up_to_mean_and_variance_of_all() -> None:
    parts = [heavy(60, 1), heavy(90, 2) * 3, heavy(25, 3)]
    all_values = np.concatenate([np.stack([clipped(column) for column in x.T], axis=1) for x in parts])
    mean, deviation = ColumnSums.added([ColumnSums.of(x) for x in parts]).mean_and_deviation()
    assert mean == pytest.approx(all_values.mean(0))
    assert deviation == pytest.approx(all_values.std(0))


def test_large_numbers_keep_their_differences() -> None:
    x = (np.arange(101, dtype=np.float32) + 2**20).reshape(-1, 1)
    _, deviation = ColumnSums.of(x).mean_and_deviation()
    assert deviation[0] == pytest.approx(clipped(x[:, 0]).std(), rel=1e-6)


def test_values_of_sparse_features_are_those_that_are_stored() -> None:
    x = np.zeros((40, 3), dtype=np.float32)
    x[:4, 0], x[5, 1] = [3, 4, 3, 4], 1
    sums = ColumnSums.of(sp.csr_matrix(x))
    assert sums.count.tolist() == [4, 1, 0]
    assert sums.other.tolist() == [4, 0, 0]
    mean, deviation = sums.mean_and_deviation()
    assert mean.tolist() == [0, 0, 0]
    assert deviation == pytest.approx([12.5**0.5, 1, 0])


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    x = heavy(50)
    whole = ColumnSums.of(x)
    monkeypatch.setattr(column_sums, "_BLOCK", 60)
    blocks = ColumnSums.of(x)
    assert blocks.squares == pytest.approx(whole.squares)
    assert [rows.start for rows in column_sums.row_blocks(x)] == [0, 30]
