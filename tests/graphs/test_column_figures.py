"""Figures of columns, dense and sparse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.graphs.column_figures import column_figures


def test_rows_of_columns_begin_with_the_widest_scale() -> None:
    x = np.stack([np.arange(100) * 0.1, np.arange(100) * 1000.0, np.arange(100) % 2], axis=1)
    rows = column_figures(x).rows(("small", "wide", "binary"))
    assert [row[0] for row in rows] == ["wide", "small"]
    assert rows[0][1:3] == ("0", "9.9e+04")
    assert len(column_figures(x).rows(None, most=1)) == 1
    assert column_figures(x).rows(None)[0][0] == "column 2"


@pytest.mark.parametrize("sparse", [False, True])
def test_figures_of_columns(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 300)) * (rng.random((1000, 300)) < 0.5)
    x[0, 0] = 1000
    x = x.astype(np.float32)
    figures = column_figures(sp.csr_matrix(x) if sparse else x)
    assert figures.high[0] == 1000
    assert figures.far[0] > 500
    assert figures.skew[0] > 20
    assert (figures.far[1:] < 15).all()
    low, high = np.quantile(x[:, 5], (0.05, 0.95))
    assert figures.deviation[5] == pytest.approx(np.clip(x[:, 5], low, high).std(), rel=1e-4)
