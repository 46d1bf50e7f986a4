"""houses: a small generated graph whose labels are numbers, for a first regression."""

from __future__ import annotations

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.datasets.catalogue import register_synthetic
from fedquilt.graphs.graph import Graph

_DISTRICTS = 6
_HOUSES = 100  # in a district
_NEAREST = 4
_UNKNOWN = 0.1  # share of the houses whose price is not known


def house_districts() -> np.ndarray:
    """[N] the district of each house; the same for every seed."""
    return np.repeat(np.arange(_DISTRICTS), _HOUSES)


@register_synthetic(
    "houses",
    "prices of houses in six districts, for a first regression",
    size=(600, 1463, 6, 1),
    natural_clients=lambda seed: house_districts(),
)
def houses(seed: int = 0) -> Graph:
    """Houses in six districts; the label is a price in thousands, which one house in ten does not have.

    A house has an area (m2), an age (years), rooms, a condition from 0 to 1, a garden or not, and the minutes to the centre. An
    edge joins a house with its four nearest in the district; near houses are alike. With a' and c' the area and the condition
    averaged over a house and its neighbours, the price is

        level (20 + 0.8 area + 2.2 a' + 160 c' - 0.7 age + 25 garden) (1 + 0.04 noise)

    where the level is the district's, from 0.7 in the farthest to 1.45 in the nearest. So neighbours tell of a price, and
    districts agree on what matters and not on how much it costs. It is an illustration, and no method should be judged on it.
    """
    rng = numpy_stream(seed, "graph", "houses")
    district = house_districts()
    nodes = district.size
    edges = _nearest(rng.random((nodes, 2)) + 2.0 * district[:, None])  # districts lie apart
    near = np.eye(nodes)
    near[edges[0], edges[1]] = near[edges[1], edges[0]] = 1.0
    near /= near.sum(1, keepdims=True)
    common = np.linalg.matrix_power(near, 4) @ rng.normal(size=(nodes, 3))  # what near houses have in common
    like = 0.8 * common / common.std(0) + 0.6 * rng.normal(size=(nodes, 3))
    area, age = np.round(np.exp(4.6 + 0.35 * like[:, 0])), np.round(30 * np.exp(0.5 * like[:, 1]))
    condition = np.round(1 / (1 + np.exp(-0.6 - 0.9 * like[:, 2])), 2)
    rooms = np.clip(np.round(area / 28 + rng.normal(0, 0.7, nodes)), 1, None)
    garden = (rng.random(nodes) < 0.4).astype(np.float64)
    minutes = np.round(5 + 7 * (_DISTRICTS - 1 - district) + rng.normal(0, 2, nodes))
    worth = 20 + 0.8 * area + 2.2 * near @ area + 160 * near @ condition - 0.7 * age + 25 * garden
    price = np.linspace(0.7, 1.45, _DISTRICTS)[district] * worth * (1 + 0.04 * rng.normal(size=nodes))
    price[rng.random(nodes) < _UNKNOWN] = np.nan
    x = np.stack([area, age, rooms, condition, garden, minutes], axis=1)
    names = ("area", "age", "rooms", "condition", "garden", "minutes")
    return Graph.from_arrays("houses", edges, x, np.full(nodes, -1), numbers=np.round(price, 1), feature_names=names)


def _nearest(place: np.ndarray) -> np.ndarray:
    """[2, E'] pairs of each point [N, 2] with its nearest ones; a pair may be there twice."""
    distance = np.linalg.norm(place[:, None] - place[None, :], axis=2)
    np.fill_diagonal(distance, np.inf)
    near = np.argsort(distance, axis=1, kind="stable")[:, :_NEAREST]
    return np.stack([np.repeat(np.arange(len(place)), _NEAREST), near.ravel()])
