"""Preparing features, against NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.column_sums import ColumnSums
from fedquilt.graphs.preparation import LINEAR, Preparation, divided_rows, notice, suggested_kind

RNG = np.random.default_rng(0)
NODES = 400
AGE, INCOME = RNG.normal(52, 17, NODES), 2e4 * np.exp(RNG.normal(0, 1, NODES)) * (1 + RNG.pareto(1.1, NODES))
SMOKER, COUNTRY = (RNG.random(NODES) < 0.3) * 1.0, np.full(NODES, 276.0)
TABLE = np.stack([AGE, INCOME, SMOKER, COUNTRY], axis=1).astype(np.float32)


def test_each_column_is_standardised_by_its_clipped_values_and_clipped_softly() -> None:
    how = Preparation.of(TABLE, "standard")
    mean, deviation = ColumnSums.of(TABLE).mean_and_deviation()
    z = (TABLE[:, :2].astype(np.float64) - mean[:2]) / deviation[:2]
    far = np.abs(z) > LINEAR
    z[far] = np.sign(z[far]) * (3 + np.log(1 + np.abs(z[far]) - 3))
    assert far.any()
    assert np.allclose(how.apply(TABLE)[:, :2], z, atol=1e-6)


def test_zeros_and_ones_stay_and_a_constant_becomes_zero() -> None:
    how = Preparation.of(TABLE, "standard")
    assert how.kept.tolist() == [False, False, True, False]
    assert how.constant.tolist() == [False, False, False, True]
    x = how.apply(TABLE)
    assert np.array_equal(x[:, 2], TABLE[:, 2])
    assert not x[:, 3].any()
    later = TABLE[:2].copy()
    later[:, 3] = [277, -1e20]  # a value that no training node had
    assert not how.apply(later)[:, 3].any()


def test_a_heavy_tail_stays_small_and_in_order() -> None:
    """The largest income is thousands of deviations from the mean."""
    x = TABLE.copy()
    x[0, 1] = 1e12
    z = Preparation.of(x, "standard").apply(x)[:, 1]
    assert np.array_equal(np.argsort(z), np.argsort(x[:, 1]))
    assert np.abs(z).max() < 25
    assert np.isfinite(z).all()
    inner = np.abs(z) < LINEAR
    assert inner.mean() > 0.85
    assert 0.5 < z[inner].std() < 1.5  # the others are not squeezed together


def test_units_make_no_difference() -> None:
    days = TABLE.copy()
    days[:, 0] *= 365.25
    years, other = (Preparation.of(x, "standard").apply(x) for x in (TABLE, days))
    assert np.allclose(years, other, atol=1e-5)


def test_the_rounding_of_a_constant_is_no_feature() -> None:
    x = np.full((30, 1), 0.1, dtype=np.float32)
    x[::2] = np.nextafter(x[::2], np.float32(1))
    assert Preparation.of(x, "standard").constant.all()


def test_sparse_features_stay_sparse_and_are_not_centred() -> None:
    x = sp.random(50, 8, 0.2, "csr", dtype=np.float32, random_state=0)
    x.data *= 1000
    how = Preparation.of(x, "standard")
    prepared = how.apply(x)
    assert sp.issparse(prepared)
    assert prepared.nnz == x.nnz
    assert how.centre is not None
    assert not how.centre.any()
    assert 0.5 < np.abs(prepared.data).mean() < 2
    assert np.allclose(prepared.toarray(), how.apply(x.toarray()), atol=1e-6)


def test_rows_are_divided_once() -> None:
    counts = np.array([[3, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=np.float32)
    for x in (counts, sp.csr_matrix(counts)):
        once = divided_rows(x)
        right = [[0.75, 0.25, 0], [0, 0, 0], [1 / 3] * 3]
        twice = divided_rows(once)
        dense, again = (one.toarray() if sp.issparse(one) else one for one in (once, twice))
        assert np.allclose(dense, right)
        assert np.array_equal(dense, again)
        assert once.dtype == np.float32
    assert np.array_equal(Preparation.of(counts, "rows").apply(counts), divided_rows(counts))


def test_none_is_the_same_array() -> None:
    assert Preparation.of(TABLE, "none").apply(TABLE) is TABLE
    assert Preparation().apply(TABLE) is TABLE


def test_what_a_graph_suggests() -> None:
    words = (np.random.default_rng(0).random((30, 100)) < 0.05) * 2.0
    assert suggested_kind(TABLE) == "standard"
    assert suggested_kind(sp.csr_matrix(words)) == "rows"
    assert suggested_kind(words) == "rows"
    assert suggested_kind(words[:, :20]) == "standard"  # few columns are no words
    assert suggested_kind(-words) == "standard"
    assert suggested_kind(words + 0.1) == "standard"


def test_what_is_done_is_said() -> None:
    how = [Preparation.of(TABLE, "standard"), Preparation.of(TABLE[:50], "standard")]
    assert notice(how, "own") == (
        "Features are standardised by each client's own statistics: 2 columns, 1 of zeros and ones stay, 1 constant ones "
        "become zero; --prepare none leaves them as they are."
    )
    assert notice([Preparation.of(TABLE[:, :2], "standard")], "shared") == (
        "Features are standardised by shared statistics: 2 columns; --prepare none leaves them as they are."
    )
    assert notice([Preparation("rows")], "own").startswith("Each node's features are divided by their sum")


def test_facts_come_back_from_json() -> None:
    how = Preparation.of(TABLE, "standard")
    back = Preparation.restored(json.loads(json.dumps(how.facts())), 4)
    assert np.array_equal(back.apply(TABLE), how.apply(TABLE))
    assert Preparation.restored(None, 4).kind == "none"
    assert Preparation.restored({"kind": "rows"}, 4).kind == "rows"
    with pytest.raises(ValueError, match="not one of these features"):
        Preparation.restored(how.facts(), 5)
    with pytest.raises(ValueError, match="not one of these features"):
        Preparation.restored(how.facts() | {"scale": [1, 1, 1, -1]}, 4)
    with pytest.raises(ValueError, match="no such preparation"):
        Preparation.restored({"kind": "log"}, 4)
    with pytest.raises(FedquiltError, match="The features are 3, and were prepared as 4"):
        how.apply(TABLE[:, :3])
