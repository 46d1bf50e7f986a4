from __future__ import annotations

import numpy as np
import torch

from fedquilt.nn.cross_cosine import cross_cosine


def test_the_cosine_is_that_of_all_tensors_together() -> None:
    stream = torch.Generator().manual_seed(0)
    left = [torch.randn(3, 4, 2, generator=stream), torch.randn(3, 5, generator=stream)]
    right = [torch.randn(2, 4, 2, generator=stream), torch.randn(2, 5, generator=stream)]
    one, two = (np.concatenate([w.flatten(1).numpy() for w in side], axis=1) for side in (left, right))
    expected = one @ two.T / np.linalg.norm(one, axis=1)[:, None] / np.linalg.norm(two, axis=1)
    assert np.allclose(cross_cosine(left, right), expected, atol=1e-6)


def test_zeros_are_like_nothing() -> None:
    assert cross_cosine([torch.zeros(1, 3)], [torch.ones(2, 3)]).tolist() == [[0.0, 0.0]]
