"""Privacy accounting: epsilon after a number of protected uploads, and the noise that keeps it within a budget.

A protected upload is a Gaussian mechanism: a vector whose L2 norm is at most `clip`, plus noise of standard deviation
noise * clip on every entry (`fedquilt.privacy.dp`). Replacing all of a client's data by any other data moves the vector by at
most 2 clip, from one end of the ball to the other, so the mechanism's noise multiplier is noise / 2. T uploads of multiplier s,
each allowed to depend on those before it, are together exactly one of multiplier s / sqrt(T) (Dong, Roth and Su, 2022), and of
that Google's dp-accounting gives the exact epsilon (Balle and Wang, 2018). Nothing is gained from sitting rounds out but
their uploads: the coordinator knows who took part.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from fedquilt.errors import FedquiltError

SENSITIVITY = 2.0  # how far replacing a client's data moves a clipped upload, in units of clip
_SPARE = 1e-9  # relative tolerance for rounding


def spent_epsilon(noise: float, rounds: int, delta: float, participation: float = 1.0) -> float:
    """Epsilon at `delta` after the uploads of so many rounds.

    Args:
        noise: the noise's standard deviation over the clip norm, of every upload.
        rounds: rounds that have gone by; participation: share of them in which the client sent, counted upward to whole ones.
        delta: the chance that epsilon does not hold.
    """
    uploads = math.ceil(rounds * participation - 1e-9)
    return 0.0 if uploads <= 0 else _epsilon(noise, uploads, delta)


@lru_cache(maxsize=100_000)
def _epsilon(noise: float, uploads: int, delta: float) -> float:
    return float(_library().get_epsilon_gaussian(noise / SENSITIVITY / math.sqrt(uploads), delta))


def noise_for(epsilon: float, delta: float, rounds: int, participation: float = 1.0) -> float:
    """The least noise, as `spent_epsilon` takes it, with which so many rounds spend no more than `epsilon`."""
    uploads = max(1, math.ceil(rounds * participation - 1e-9))
    return _sigma(epsilon, delta) * SENSITIVITY * math.sqrt(uploads) * (1.0 + _SPARE)


@lru_cache(maxsize=1000)
def _sigma(epsilon: float, delta: float) -> float:
    return float(_library().get_sigma_gaussian(epsilon, delta))


def affordable_uploads(noise: float, epsilon: float, delta: float, most: int) -> int:
    """How many uploads stay within `epsilon`, up to `most`."""
    low, high = 0, most
    while low < high:  # epsilon rises with the number of uploads
        middle = (low + high + 1) // 2
        if spent_epsilon(noise, middle, delta) <= epsilon * (1.0 + _SPARE):
            low = middle
        else:
            high = middle - 1
    return low


def _library() -> Any:
    """dp-accounting, which only those who use differential privacy need."""
    try:
        import dp_accounting
    except ImportError:
        raise FedquiltError(
            "Differential privacy is accounted for by dp-accounting, which is not installed; run "
            "'pip install \"fedquilt[dp]\"'."
        ) from None
    return dp_accounting
