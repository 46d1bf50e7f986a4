from __future__ import annotations

import numpy as np

from fedquilt.reports.page.condense import curve, holdings, mean_over_factors, similarity, thinned, view_shares
from fedquilt.reports.views import ViewWeights


def test_long_curves_are_thinned_but_keep_the_first_the_last_and_the_best() -> None:
    records = [{"round": i, "val": 50.0 + (i == 777), "test": 50.0} for i in range(5000)]
    thin = curve([records])
    assert len(thin.rounds) <= 200
    assert {0, 777, 4999} <= set(thin.rounds)
    assert curve([[]]).rounds == ()


def test_a_matrix_without_symmetry_with_gaps_and_with_many_clients() -> None:
    rng = np.random.default_rng(0)
    square = rng.uniform(-1, 1, (5, 5))
    square[1, 2] = np.nan
    one = similarity(square, 3, False)
    assert one.levels[0, 1, 2] == -1
    assert one.levels.max() <= 1000
    many = similarity(rng.uniform(0, 1, (1000, 1000)), 0, True)
    assert many.block == 10
    assert many.levels.shape == (1, 100, 100)
    same = similarity(np.ones((3, 3)), 0, True)
    assert (same.levels == 0).all()
    factors = rng.uniform(0, 1, (4, 6, 6))
    mean = mean_over_factors(similarity(factors, 0, True))
    off = ~np.eye(6, dtype=bool)
    values = mean.low[0] + mean.levels[0] / 1000 * (mean.high[0] - mean.low[0])
    np.testing.assert_allclose(values[off], factors.mean(0)[off], atol=2e-3)


def test_weights_of_views_are_short_and_keep_what_is_not_known() -> None:
    clients = np.tile([0.123456, 0.876544], (1000, 1))
    clients[0], clients[5:10] = (1.0, 0.0), np.nan
    found = ViewWeights(("mlp", "sage"), clients, (), np.arange(500), np.full((500, 2), 0.5), last=499, best=3)
    shares = view_shares(found)
    assert (shares.block, len(shares.clients), shares.clients[1]) == (5, 200, None)
    assert shares.clients[0] == (0.299, 0.701)
    assert shares.clients[2] == (0.123, 0.877)
    assert (len(shares.rounds), shares.rounds[0], shares.rounds[-1], shares.by_round[0]) == (200, 0, 499, (0.5, 0.5))


def test_many_clients_and_classes_become_blocks_and_others() -> None:
    counts = np.ones((1000, 40), dtype=int)
    cut = holdings({"sizes": counts.sum(1), "class_counts": counts})
    assert cut is not None
    assert cut.block == 5
    assert len(cut.sizes) == 200
    assert len(cut.classes) == 15
    assert cut.classes[-1] == "others"
    assert sum(map(sum, cut.counts)) == sum(cut.sizes) == 40_000
    assert holdings(None) is None
    few = thinned(list(range(1000)), 10, lambda i: i)
    assert few[0] == 0
    assert few[-1] == 999
    assert len(few) == 10
