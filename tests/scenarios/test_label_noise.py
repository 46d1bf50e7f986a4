"""Noise on training labels: which change, how often, and to what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL
from fedquilt.scenarios.label_noise import check_label_noise, with_label_noise

N, C = 6000, 4


def client() -> Client:
    y = np.arange(N) % C
    split = np.array([TRAIN, VAL, TEST, NONE], dtype=np.int8)[np.arange(N) // C % 4]
    y[split == NONE] = -1
    return Client(0, Graph("g", np.zeros((2, 0), np.int64), np.ones((N, 1), np.float32), y, C), split)


def noisy(chance: float, kind: Any = "uniform") -> tuple[np.ndarray, np.ndarray]:
    """The true and the noisy labels of the training nodes; all others are the same."""
    before = client()
    after = with_label_noise(before, chance, kind, np.random.default_rng(0))
    hidden = before.split != TRAIN
    np.testing.assert_array_equal(after.graph.y[hidden], before.graph.y[hidden])
    np.testing.assert_array_equal(before.graph.y, client().graph.y)
    after.graph.validate()
    return before.graph.y[~hidden], after.graph.y[~hidden]


def test_without_noise_it_is_the_same_client() -> None:
    one = client()
    assert with_label_noise(one, 0.0, "uniform", np.random.default_rng(0)) is one


def test_uniform_noise_gives_each_other_class_alike() -> None:
    true, given = noisy(0.3)
    count = len(true)
    for step in range(C):
        expected = 0.7 if step == 0 else 0.1
        share = ((given - true) % C == step).mean()
        assert share == pytest.approx(expected, abs=5 * np.sqrt(expected * (1 - expected) / count))


def test_pair_noise_gives_the_next_class() -> None:
    true, given = noisy(0.4, "pair")
    steps = (given - true) % C
    assert set(steps) == {0, 1}
    assert (steps == 1).mean() == pytest.approx(0.4, abs=5 * np.sqrt(0.24 / len(true)))
    true, given = noisy(1.0, "pair")
    np.testing.assert_array_equal(given, (true + 1) % C)


@pytest.mark.parametrize(
    ("task", "has_classes", "classes", "says"),
    [("node-regression", False, 1, "has no classes"), ("node-classification", True, 1, "one class only")],
)
def test_what_makes_no_sense_is_refused(task: str, has_classes: bool, classes: int, says: str) -> None:
    with pytest.raises(FedquiltError, match=says):
        check_label_noise(task, has_classes, classes)
    check_label_noise("node-classification", True, 2)
