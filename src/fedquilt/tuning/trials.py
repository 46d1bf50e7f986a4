"""Optuna, as far as a search needs it: proposals, stopping, and what became of each trial."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from fedquilt.common.random_streams import derive
from fedquilt.tuning.outcome import Trial
from fedquilt.tuning.space import Choice, Range, Space

STARTUP = 6  # trials at random before Optuna learns from them, and done ones before any is stopped
TELLING = 10  # done trials from which it can be said which settings matter
_NAME, _WHY = "tune", "why"


class BehindError(Exception):
    """A trial that is not worth going on with."""


class Trials:
    """The trials of one search.

    Args:
        storage: where they are kept.
        seed: from which, with a trial's number, its settings are drawn: a search that was killed goes on with the trials
            that it would have had.
    """

    def __init__(self, storage: optuna.storages.BaseStorage, seed: int) -> None:
        self._seed = seed
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP)
        self._study = optuna.create_study(
            storage=storage, pruner=pruner, study_name=_NAME, direction="maximize", load_if_exists=True
        )
        for killed in self._study.get_trials(states=(TrialState.RUNNING,)):
            self._study.tell(killed.number, state=TrialState.FAIL)

    def propose(self, space: Space, fixed: Mapping[str, Any] | None = None) -> optuna.Trial:
        """The next trial, with settings drawn from the space, or with these."""
        seed = derive(self._seed, "tuning", len(self.ended())) % 2**32
        self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        if fixed is not None and not self._study.get_trials(states=(TrialState.WAITING,)):
            self._study.enqueue_trial(dict(fixed))
        return self._study.ask({name: distribution(part) for name, part in space.items()})

    def note(self, trial: optuna.Trial, value: float, step: int) -> None:
        """Note what a trial's value is at least, by now; `BehindError` where it is not worth going on."""
        trial.report(value, step)
        if trial.should_prune():
            raise BehindError

    def finish(self, trial: optuna.Trial, value: float | None, why: str | None = None) -> None:
        """A trial came to an end: with a value; with None as it lagged behind; or with None and why it failed.

        A failed trial counts as a bad one: Optuna looks elsewhere then.
        """
        if why is not None:
            trial.set_user_attr(_WHY, why)
        self._study.tell(trial, value, state=TrialState.COMPLETE if value is not None else TrialState.PRUNED)

    def ended(self) -> list[Trial]:
        """The trials that came to an end, in their order; those that were killed do not count."""
        found = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        return [_as_trial(number, frozen) for number, frozen in enumerate(found, start=1)]

    def importances(self) -> dict[str, float]:
        """Roughly how much each setting matters, the most important first; nothing where there are too few trials to tell."""
        done = {trial.val for trial in self.ended() if trial.val is not None}
        if len(done) < TELLING:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # takes no time, and no other package
        found = optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}


def distribution(part: Choice | Range) -> BaseDistribution:
    """A part of a space as Optuna has it."""
    if isinstance(part, Choice):
        return CategoricalDistribution(part.values)
    if part.whole:
        return IntDistribution(int(part.low), int(part.high), log=part.log)
    return FloatDistribution(part.low, part.high, log=part.log)


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna's own lines and warnings are not for our user."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _as_trial(number: int, frozen: optuna.trial.FrozenTrial) -> Trial:
    why = frozen.user_attrs.get(_WHY)
    done = frozen.state == TrialState.COMPLETE
    return Trial(
        number=number,
        settings=dict(frozen.params),
        val=frozen.value if done else None,
        state="done" if done else "failed" if why else "stopped",
        why=why,
        rounds=0 if frozen.last_step is None else frozen.last_step + 1,
        seconds=0.0 if frozen.duration is None else frozen.duration.total_seconds(),
    )
