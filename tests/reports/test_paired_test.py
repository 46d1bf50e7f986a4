"""Wilcoxon's test as tables use it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import wilcoxon

from fedquilt.reports.paired_test import FEWEST, wilcoxon_p


def test_as_scipy_has_it_and_unknown_for_few_pairs() -> None:
    ahead = np.array([1.0, 2.0, -0.5, 3.0, 2.5, 0.1, 4.0])
    assert wilcoxon_p(ahead) == pytest.approx(wilcoxon(ahead).pvalue)
    assert math.isnan(wilcoxon_p(ahead[: FEWEST - 1]))
    assert wilcoxon_p(np.zeros(8)) == 1.0
    assert wilcoxon_p(np.arange(1.0, FEWEST + 1)) < 0.05
