"""A site's differential-privacy budget: what it has spent over all its runs, in a file on its own disk."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from fedquilt.common.files import write_json
from fedquilt.common.lock import locked
from fedquilt.errors import FedquiltError
from fedquilt.privacy.accountant import spent_epsilon
from fedquilt.privacy.dp import BudgetSpentError, DpConfig

BUDGET = "privacy.json"
LOCK_SECONDS = 10.0  # how long to wait for another process that reads and writes the file
_ROUNDING = 1e-9  # relative error allowed when epsilon is compared with the budget


class Budget:
    """The budget, and the noisy uploads that were paid from it.

    Uploads with noise s_1, .., s_T (standard deviations over the clip norm) cost as much as one with noise s where
    1 / s^2 = sum_t 1 / s_t^2. So the file holds two numbers: the count of uploads and this sum, the precision.
    """

    def __init__(self, folder: str | os.PathLike[str], config: DpConfig) -> None:
        """`folder` is the site's state folder, for all its runs."""
        self.path, self.config = Path(folder) / BUDGET, config

    def spent(self) -> float:
        """Epsilon so far, at the site's delta."""
        return self._epsilon(self._read()[1])

    @property
    def uploads(self) -> int:
        """How many uploads were paid so far."""
        return self._read()[0]

    def affords(self, noise: float) -> bool:
        """Whether another upload with this noise is within the budget."""
        limit = self.config.epsilon
        return limit is None or self._epsilon(self._read()[1] + noise**-2) <= limit * (1.0 + _ROUNDING)

    def spend(self, noise: float) -> float:
        """Pay for one more upload with this noise, before it leaves; returns epsilon after it.

        BudgetSpentError where it would exceed the budget; HeldError where another process holds the file for too long.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self.path.with_name(".privacy.lock"), self.path, LOCK_SECONDS):
            uploads, precision = self._read()
            after = self._epsilon(precision + noise**-2)
            limit = self.config.epsilon
            if limit is not None and after > limit * (1.0 + _ROUNDING):
                raise BudgetSpentError(
                    f"Another upload would bring this site's epsilon from {self._epsilon(precision):.3g} to {after:.3g}, "
                    f"over its budget of {limit:g}: nothing is sent any more."
                )
            write_json(self.path, {"uploads": uploads + 1, "precision": precision + noise**-2})
        return after

    def _epsilon(self, precision: float) -> float:
        return spent_epsilon(1.0 / math.sqrt(precision), 1, self.config.delta) if precision else 0.0

    def _read(self) -> tuple[int, float]:
        try:
            saved = json.loads(self.path.read_bytes())
            uploads, precision = int(saved["uploads"]), float(saved["precision"])
        except FileNotFoundError:
            return 0, 0.0
        except (ValueError, KeyError, TypeError):
            uploads, precision = -1, math.nan
        if uploads < 0 or not 0 <= precision < math.inf:
            raise FedquiltError(
                f"{self.path}, where this site notes what privacy it has spent, is damaged: nothing is sent until it is mended."
            )
        return uploads, precision
