"""The generated graph whose labels are numbers."""

from __future__ import annotations

import numpy as np

from fedquilt.datasets.catalogue import natural_clients
from fedquilt.datasets.entries.houses import house_districts, houses
from fedquilt.datasets.load import load_graph
from support.graphs import assert_same


def test_a_seed_gives_one_graph() -> None:
    assert_same(load_graph("houses")[0], houses(0))
    other = load_graph("houses:seed=1")[0]
    assert not np.array_equal(other.numbers, houses(0).numbers, equal_nan=True)


def test_districts_lie_apart_and_some_prices_are_unknown() -> None:
    graph, district = houses(), house_districts()
    np.testing.assert_array_equal(district[graph.edges[0]], district[graph.edges[1]])
    np.testing.assert_array_equal(natural_clients("houses"), district)
    assert 0.05 < np.isnan(graph.numbers).mean() < 0.15
    level = [np.nanmean(graph.numbers[district == one]) for one in range(6)]
    assert np.corrcoef(level, np.arange(6))[0, 1] > 0.9


def test_neighbours_tell_of_a_price() -> None:
    graph, district = houses(), house_districts()
    price = np.log(graph.numbers)
    price -= np.array([np.nanmean(price[district == one]) for one in range(6)])[district]
    u, v = graph.edges
    known = ~np.isnan(price[u] + price[v])
    assert np.corrcoef(price[u[known]], price[v[known]])[0, 1] > 0.5
