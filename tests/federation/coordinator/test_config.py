"""The run config: what is wrong is a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.config import FederationConfig, app_file, app_text
from fedquilt.runs.config import RunConfig
from fedquilt.runs.options import options_of


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"method": "fedpup"}, "did you mean 'fedpub'"),
        ({"rounds": 0}, "'rounds' is not possible"),
        ({"settings": "{"}, "'settings' is not"),
        ({"metric": "f1"}, "no metric 'f1'"),
        ({"sites": 2, "min-sites": 3}, "min-sites is 3 and there are 2 sites"),
        ({"out": ""}, "'out' is not possible"),
        ({"secure-range": 0.5}, "'secure-range' is not possible"),
        ({"secure-range": 1e9}, "'secure-range' is not possible"),
        ({"drop-out": 0.3}, "'drop-out' simulates what happens to real sites by itself"),
        ({"join_late": 0.3}, "'join_late' simulates what happens to real sites by itself"),
    ],
)
def test_a_wrong_configuration_is_a_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(FedquiltError, match=says):
        FederationConfig.read({"out": "run", **values})


def test_the_settings_of_the_flower_app_are_made_from_the_schema() -> None:
    text = app_file().read_text(encoding="utf-8")
    assert text == app_text(text), "write it anew with 'make options'"


# 0 stands for None in Flower's run config.
PROBES: dict[str, list[Any]] = {
    "rounds": [1, 7, -1],
    "epochs": [1, 7, -1],
    "patience": [1, 7, -1],
    "participation": [0.0, 0.1, 1.0, 1.1],
    "evaluate_every": [0, 1, 9],
    "aggregation": ["mean", "median", "average"],
    "aggregation_trim": [-0.1, 0.0, 0.4, 0.5],
    "aggregation_clip": [0.0, 0.1, 9.0],
}


def possible(schema: Any, values: dict[str, Any]) -> bool:
    try:
        schema(**values)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", PROBES)
def test_an_option_that_a_run_has_too_has_its_bounds_and_its_help(name: str) -> None:
    rule = {"aggregation_trim": "trimmed", "aggregation_clip": "clipped"}
    for value in PROBES[name]:
        values = {name: value} | ({"aggregation": rule[name]} if name in rule else {})
        assert possible(FederationConfig, {"out": "run", **values}) == possible(RunConfig, values), value
    mine, of_run = options_of(FederationConfig)[name].about.help, options_of(RunConfig)[name].about.help
    assert mine.startswith(of_run)
