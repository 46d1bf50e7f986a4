"""The test by which tables and pages say whether one method is better than another: paired, without a distribution."""

from __future__ import annotations

import math

import numpy as np

ALPHA = 0.05
FEWEST = 6  # with fewer pairs, the two-sided p cannot be below 0.05


def wilcoxon_p(ahead: np.ndarray) -> float:
    """p of Wilcoxon's signed-rank test, two-sided, of the pairs' differences [n]; 1 where all are zero, NaN for n < 6."""
    from scipy.stats import wilcoxon

    if len(ahead) < FEWEST:
        return math.nan
    return 1.0 if not ahead.any() else float(wilcoxon(ahead).pvalue)
