"""How far a search is, for whoever watches it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fedquilt.tuning.outcome import Trial


@dataclass(frozen=True)
class SearchProgress:
    """How far a search is.

    Attributes:
        trial: the number of the trial that trains or just ended; trials: how many there are to be.
        share: how much of that trial is done.
        val: its validation metric so far, NaN before the first; best: that of the best trial that is done, NaN before.
        left: seconds until the last trial is done, at the present pace; NaN before the first round.
        ended: the trial, when it came to an end.
    """

    trial: int
    trials: int
    share: float
    val: float
    best: float
    left: float
    ended: Trial | None = None


Watch = Callable[[SearchProgress], None]


class Pace:
    """Guesses when a search is over, from the trials since it began or went on."""

    def __init__(self, first: int, trials: int, timeout: float | None) -> None:
        self._first, self._trials, self._timeout = first, trials, timeout
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether no trial may start any more."""
        return self._timeout is not None and self.seconds >= self._timeout

    def left(self, trial: int, share: float) -> float:
        """Seconds left when so much of this trial is done; NaN before anything is."""
        done = trial - self._first + share
        if done <= 0:
            return float("nan")
        left = self.seconds / done * (self._trials - trial + 1 - share)
        return left if self._timeout is None else min(left, max(0.0, self._timeout - self.seconds))
