"""Rules of mixing views that are asked in one training give what they would give in trainings of their own."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import pytest
from benchmarks.quilt_mixtures import AS_IT_IS, RULES, outcomes_of, table

import fedquilt
from fedquilt.training import memory_notice

OPTIONS: dict[str, Any] = {"partition": "natural", "rounds": 70}  # views are dropped before rounds 30 and 60
SETTINGS: dict[str, dict[str, Any]] = {
    AS_IT_IS: {},
    "no view dropped": {"drop": False},
    "a third as sharp": {"sharpness": 1 / 3},
    "all views alike": {"drop": False, "sharpness": 0.0},
    "sage alone": {"model": "sage", "hidden": 96},
}


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[float, float]]:
    return outcomes_of("patchwork", 0, **OPTIONS)


@pytest.mark.parametrize("rule", SETTINGS)
def test_a_rule_gives_what_quilt_gives_with_such_settings(rule: str, found: dict[str, tuple[float, float]]) -> None:
    run = fedquilt.run(
        "quilt", "patchwork", seeds=[0], settings=SETTINGS[rule], device="cpu", progress=False, **OPTIONS
    )
    best = max(run.records[0], key=lambda record: record["val"])
    assert found[rule] == pytest.approx((best["val"], best["test"]), abs=1e-4)


def test_trainings_that_measure_memory_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {"partition": "natural", "rounds": 3}
    plain = outcomes_of("patchwork", 0, **usual)
    # Where states might not fit, some clients are trained alone before the training begins, to see how much they take.
    monkeypatch.setattr(memory_notice, "_at_most", lambda method, clients: math.inf)
    with mock.patch.object(memory_notice, "estimate_memory", wraps=memory_notice.estimate_memory) as estimate:
        assert outcomes_of("patchwork", 0, **usual) == plain
    estimate.assert_called_once()


def test_rules_differ(found: dict[str, tuple[float, float]]) -> None:
    assert set(found) == set(RULES)
    assert len(set(found.values())) > len(RULES) // 2


def test_the_table_has_differences_from_the_rule_as_it_is() -> None:
    made = dict.fromkeys(RULES, (50.0, 40.0)) | {"sage alone": (49.0, 42.5)}
    lines = table({"a": [made, made | {"sage alone": (50.0, 42.5)}]}).splitlines()
    assert lines[0] == "| rule | a |"
    assert lines[2] == f"| {AS_IT_IS} | 50.0 / 40.0 |"
    assert "| sage alone | -0.5 / +2.5 |" in lines
