"""The Dirichlet distribution that some partitions are skewed by, and the option for its concentration."""

from __future__ import annotations

import numpy as np

from fedquilt.partition.kind import Option

ALPHA = 0.5
ALPHA_OPTION = Option(
    "alpha", float, f"the concentration of the Dirichlet distribution ({ALPHA}); smaller is more skewed"
)


def log_dirichlet(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
    """Draw from Dir(concentration) over the last axis, [..., K] all positive: the logarithms of the shares, [..., K].

    In logarithms, because most shares of a small concentration are too small for a float: log G(a) = log G(a + 1) + log(U) / a.
    """
    drawn = np.log(rng.standard_gamma(concentration + 1.0)) + np.log1p(-rng.random(concentration.shape)) / concentration
    highest = drawn.max(axis=-1, keepdims=True)
    out: np.ndarray = drawn - highest - np.log(np.exp(drawn - highest).sum(axis=-1, keepdims=True))
    return out
