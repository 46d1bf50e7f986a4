"""The trials of a search in Optuna: proposals, pruning and results."""

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

STARTUP = 6  # random trials before Optuna's sampler uses results, and finished trials before any is stopped
FEWEST_FOR_IMPORTANCES = 10  # finished trials needed to compute importances
_NAME, _WHY = "tune", "why"


class PrunedError(Exception):
    """Optuna prunes the trial: its value so far is worse than the median of the others."""


class Trials:
    """The trials of one search.

    Args:
        storage: Optuna's storage.
        seed: the settings of a trial are drawn from this seed and its number, so that a resumed search has the same trials
            as one that was not interrupted.
        higher_is_better: the direction of the metric.
    """

    def __init__(self, storage: optuna.storages.BaseStorage, seed: int, higher_is_better: bool = True) -> None:
        self._seed = seed
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP)
        self._study = optuna.create_study(
            storage=storage,
            pruner=pruner,
            study_name=_NAME,
            direction="maximize" if higher_is_better else "minimize",
            load_if_exists=True,
        )
        for killed in self._study.get_trials(states=(TrialState.RUNNING,)):
            self._study.tell(killed.number, state=TrialState.FAIL)

    def propose(self, space: Space, fixed: Mapping[str, Any] | None = None) -> optuna.Trial:
        """Start the next trial, with settings drawn from the space, or with the `fixed` ones."""
        seed = derive(self._seed, "tuning", len(self.ended())) % 2**32
        self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        if fixed is not None and not self._study.get_trials(states=(TrialState.WAITING,)):
            self._study.enqueue_trial(dict(fixed))
        return self._study.ask({name: distribution(part) for name, part in space.items()})

    def report(self, trial: optuna.Trial, value: float, step: int) -> None:
        """Report a lower bound of a trial's value after `step` rounds; raise `PrunedError` if Optuna prunes the trial."""
        trial.report(value, step)
        if trial.should_prune():
            raise PrunedError

    def finish(self, trial: optuna.Trial, value: float | None, why: str | None = None) -> None:
        """End a trial with its value, with None if it was pruned, or with None and `why` if it failed.

        A failed trial is reported to Optuna as pruned, so that Optuna avoids such settings.
        """
        if why is not None:
            trial.set_user_attr(_WHY, why)
        self._study.tell(trial, value, state=TrialState.COMPLETE if value is not None else TrialState.PRUNED)

    def ended(self) -> list[Trial]:
        """Return the trials that have ended, in their order, without those that were killed."""
        found = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        return [_as_trial(number, frozen) for number, frozen in enumerate(found, start=1)]

    def importances(self) -> dict[str, float]:
        """Compute the share of the difference between trials that each setting explains, largest first; empty if too few."""
        done = {trial.val for trial in self.ended() if trial.val is not None}
        if len(done) < FEWEST_FOR_IMPORTANCES:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # fast, and needs no other package
        found = optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}


def distribution(part: Choice | Range) -> BaseDistribution:
    """Return Optuna's distribution for a setting's values."""
    if isinstance(part, Choice):
        return CategoricalDistribution(part.values)
    if part.whole:
        return IntDistribution(int(part.low), int(part.high), log=part.log)
    return FloatDistribution(part.low, part.high, log=part.log)


@contextmanager
def silenced_optuna() -> Iterator[None]:
    """Turn off Optuna's own log lines and warnings for a block."""
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
