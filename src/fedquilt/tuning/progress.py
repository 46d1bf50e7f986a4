"""The progress of a search, passed to watchers, and the clock that estimates the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fedquilt.tuning.outcome import Trial


@dataclass(frozen=True)
class SearchProgress:
    """The progress of a search after a round or a trial.

    Attributes:
        trial: the number of the trial that trains or just ended. trials: the total number of trials.
        share: the share of that trial that is done.
        val: its validation metric so far; NaN before the first one.
        best: the validation metric of the best finished trial; NaN before the first one.
        left: estimated seconds until the last trial ends; NaN before the first round.
        ended: the trial that just ended, or None.
    """

    trial: int
    trials: int
    share: float
    val: float
    best: float
    left: float
    ended: Trial | None = None


Watch = Callable[[SearchProgress], None]


class SearchClock:
    """Measures the time of a search since it was started or resumed, and estimates when it ends.

    Args:
        first: the number of the first trial since then. trials: the total number of trials.
        timeout: no trial starts after this many seconds; None: no limit.
    """

    def __init__(self, first: int, trials: int, timeout: float | None) -> None:
        self._first, self._trials, self._timeout = first, trials, timeout
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether the timeout has passed."""
        return self._timeout is not None and self.seconds >= self._timeout

    def left(self, trial: int, share: float) -> float:
        """Estimate the seconds left when this share of this trial is done; NaN at the start."""
        done = trial - self._first + share
        if done <= 0:
            return float("nan")
        left = self.seconds / done * (self._trials - trial + 1 - share)
        return left if self._timeout is None else min(left, max(0.0, self._timeout - self.seconds))
