"""Trials in Optuna."""

from __future__ import annotations

import logging
import math

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage

from fedquilt.tuning.space import Choice, Range
from fedquilt.tuning.trials import FEWEST_FOR_IMPORTANCES, STARTUP, PrunedError, Trials, distribution, silenced_optuna

SPACE = {"lr": Range(0.0, 1.0)}


def test_importances_are_told_where_there_are_enough_trials() -> None:
    tried = Trials(InMemoryStorage(), seed=0)
    for number in range(40):
        trial = tried.propose({"lr": Range(0.0, 1.0), "dropout": Range(0.0, 1.0)})
        tried.finish(trial, 50 + 40 * trial.params["lr"])
        assert (tried.importances() == {}) == (number + 1 < FEWEST_FOR_IMPORTANCES)
    found = tried.importances()
    assert found["lr"] > 0.8
    assert math.isclose(sum(found.values()), 1.0)


def test_a_trial_below_the_median_of_the_others_is_pruned() -> None:
    tried = Trials(InMemoryStorage(), seed=0)
    for value in range(STARTUP):
        trial = tried.propose(SPACE)
        tried.report(trial, 50.0 + value, step=3)
        tried.finish(trial, 50.0 + value)
    good, bad = tried.propose(SPACE), tried.propose(SPACE)
    tried.report(good, 90.0, step=3)
    with pytest.raises(PrunedError):
        tried.report(bad, 1.0, step=3)
    tried.finish(bad, None)
    assert [trial.state for trial in tried.ended()] == ["done"] * STARTUP + ["stopped"]


def test_a_failed_trial_has_its_reason_and_one_that_was_killed_is_proposed_again() -> None:
    storage = InMemoryStorage()
    tried = Trials(storage, seed=3)
    tried.finish(tried.propose(SPACE), None, "Training diverged.")
    killed = tried.propose(SPACE)
    resumed = Trials(storage, seed=3)
    assert [(trial.state, trial.why) for trial in resumed.ended()] == [("failed", "Training diverged.")]
    assert resumed.propose(SPACE).params == killed.params


def test_parts_of_a_space_are_distributions() -> None:
    assert distribution(Choice((1, 2))) == CategoricalDistribution((1, 2))
    assert distribution(Range(1, 3)) == IntDistribution(1, 3)
    assert distribution(Range(0.1, 3.0, log=True)) == FloatDistribution(0.1, 3.0, log=True)


def test_optuna_is_silent_for_a_block_only() -> None:
    before = optuna.logging.get_verbosity()
    with silenced_optuna():
        assert optuna.logging.get_verbosity() == logging.ERROR
    assert optuna.logging.get_verbosity() == before
