"""Similarities of pairs that were never compared."""

from __future__ import annotations

import numpy as np
import torch

from fedquilt.methods.known_pairs import note_pairs, with_typical


def test_pairs_are_known_once_both_sent() -> None:
    known = torch.zeros(4, 4, dtype=torch.bool)
    note_pairs(known, torch.tensor([0, 2]))
    note_pairs(known, torch.tensor([2, 3]))
    right = np.zeros((4, 4), dtype=bool)
    for pair in ((0, 2), (2, 3)):
        right[np.ix_(pair, pair)] = True
    assert np.array_equal(known.numpy(), right)
    note_pairs(known, torch.arange(4))
    assert bool(known.all())


def test_the_others_are_typical_by_numpy() -> None:
    rng = np.random.default_rng(0)
    similarity, known = rng.random((2, 5, 4)).astype(np.float32), rng.random((5, 4)) < 0.5
    known[1] = False
    known[2] = True
    found = with_typical(torch.from_numpy(similarity), torch.from_numpy(known)).numpy()
    for k in range(2):
        for r in range(5):
            mean = similarity[k, r, known[r]].mean() if known[r].any() else 0.0
            assert np.allclose(found[k, r], np.where(known[r], similarity[k, r], mean), atol=1e-6)
    assert np.array_equal(found[:, 2], similarity[:, 2])  # bit by bit
