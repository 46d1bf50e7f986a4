"""What a site has spent of its differential-privacy budget, over all runs it takes part in: kept on its own disk."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedquilt.common.files import write_json
from fedquilt.common.lock import HeldError, locked
from fedquilt.errors import FedquiltError
from fedquilt.privacy.accountant import spent_epsilon
from fedquilt.privacy.dp import BudgetSpentError, DpConfig

BUDGET = "privacy.json"
WAIT = 10.0  # seconds that another process, which only reads and writes two numbers, is waited for
_LOOK = 0.05  # seconds between looks
_SPARE = 1e-9  # relative, for rounding


class Budget:
    """The uploads that left with noise so far.

    Uploads with noise s_1, .., s_T (standard deviations over the clip norm) are together one with noise s where
    1 / s^2 = sum_t 1 / s_t^2, so two numbers are all that is kept.
    """

    def __init__(self, folder: str | os.PathLike[str], config: DpConfig) -> None:
        """`folder` is the site's state folder, for all its runs."""
        self.path, self.config = Path(folder) / BUDGET, config

    def spent(self) -> float:
        """Epsilon so far, at the site's delta."""
        return self._epsilon(self._read()[1])

    @property
    def uploads(self) -> int:
        """How many uploads left so far."""
        return self._read()[0]

    def affords(self, noise: float) -> bool:
        """Whether another upload with this noise is within the budget."""
        limit = self.config.epsilon
        return limit is None or self._epsilon(self._read()[1] + noise**-2) <= limit * (1.0 + _SPARE)

    def take(self, noise: float) -> float:
        """Spend one more upload with this noise, before it leaves; epsilon after it. Refused where the budget is exceeded."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            uploads, precision = self._read()
            after = self._epsilon(precision + noise**-2)
            limit = self.config.epsilon
            if limit is not None and after > limit * (1.0 + _SPARE):
                raise BudgetSpentError(
                    f"Another upload would bring this site's epsilon from {self._epsilon(precision):.3g} to {after:.3g}, "
                    f"over its budget of {limit:g}: nothing is sent any more."
                )
            write_json(self.path, {"uploads": uploads + 1, "precision": precision + noise**-2})
        return after

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else spends meanwhile; HeldError where another process does not come to an end."""
        until = time.monotonic() + WAIT
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(locked(self.path.with_name(".privacy.lock"), self.path))
                    break
                except HeldError:
                    if time.monotonic() >= until:
                        raise
                    time.sleep(_LOOK)
            yield

    def _epsilon(self, precision: float) -> float:
        return spent_epsilon(1.0 / math.sqrt(precision), 1, self.config.delta) if precision else 0.0

    def _read(self) -> tuple[int, float]:
        try:
            kept = json.loads(self.path.read_bytes())
            uploads, precision = int(kept["uploads"]), float(kept["precision"])
        except FileNotFoundError:
            return 0, 0.0
        except (ValueError, KeyError, TypeError):
            uploads, precision = -1, math.nan
        if uploads < 0 or not 0 <= precision < math.inf:
            raise FedquiltError(
                f"{self.path}, where this site notes what privacy it has spent, is damaged: nothing is sent until it is mended."
            )
        return uploads, precision
