"""Cost beside gain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.studies.scoreboard.costs import cheapest_for_gain, method_costs
from fedquilt.studies.scoreboard.ranking import ranked_places
from support.scoreboards import tuned

COSTS = {"local": (0.1, 0.0), "fedavg": (0.2, 4.0), "fedpub": (0.8, 2.0), "quilt": (0.4, 2.0)}


def test_costs_are_ratios_to_fedavg_and_gains_points_above_it(tmp_path: Path) -> None:
    values = np.array([58.0, 60.0, 61.0, 63.0])[:, None, None] + np.zeros((4, 3, 2))
    found = {cost.method: cost for cost in method_costs(ranked_places({"one": tuned(tmp_path, values, costs=COSTS)}))}
    assert {name: cost.gain for name, cost in found.items()} == {"fedavg": 0, "local": -2, "fedpub": 1, "quilt": 3}
    assert found["fedpub"].time == pytest.approx(4.0)
    assert found["fedpub"].bytes == pytest.approx(0.5)
    assert found["local"].bytes == 0.0
    assert (found["quilt"].seconds, found["quilt"].megabytes, found["quilt"].places) == (0.4, 2.0, 3)
    assert [cost.method for cost in cheapest_for_gain(list(found.values()), "time")] == ["local", "fedavg", "quilt"]
    assert [cost.method for cost in cheapest_for_gain(list(found.values()), "bytes")] == ["local", "quilt"]


def test_without_costs_there_are_none(tmp_path: Path) -> None:
    assert method_costs(ranked_places({"one": tuned(tmp_path, np.ones((4, 3, 2)))})) == []
    assert method_costs([]) == []


def test_a_method_whose_times_cannot_be_compared_has_bytes_alone(tmp_path: Path) -> None:
    values = np.array([58.0, 60.0, 61.0, 63.0])[:, None, None] + np.zeros((4, 3, 2))
    places = ranked_places({"one": tuned(tmp_path, values, costs=COSTS)})
    for place in places:
        del place.costs["quilt"]["seconds"]
    found = {cost.method: cost for cost in method_costs(places)}
    quilt = found["quilt"]
    assert (quilt.gain, quilt.time, quilt.seconds, quilt.bytes) == (3, None, None, pytest.approx(0.5))
    assert [cost.method for cost in cheapest_for_gain(list(found.values()), "time")] == ["local", "fedavg", "fedpub"]
    assert [cost.method for cost in cheapest_for_gain(list(found.values()), "bytes")] == ["local", "quilt"]
