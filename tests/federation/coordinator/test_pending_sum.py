"""The masked sum on the coordinator's disk: of this run and this round, or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedquilt.federation.coordinator.pending_sum import PendingSum
from fedquilt.federation.secure.keys import SiteKeys
from fedquilt.federation.secure.opening import MaskedSum

MASKED = MaskedSum("a" * 32, 4, {1: SiteKeys("k", "l", "m", "n")}, [0, 1], [1], np.array([2**64 - 1, 3], np.uint64))


def test_a_sum_comes_back_for_its_round_and_run_only(tmp_path: Path) -> None:
    store = PendingSum(tmp_path / "sum", "cafe")
    assert store.load(4) is None
    store.save(MASKED, torch.full((5, 2), 0.5))
    found = PendingSum(tmp_path / "sum", "cafe").load(4)
    assert found is not None
    masked, metrics = found
    assert masked.total.tolist() == MASKED.total.tolist()
    assert (masked.sum_id, masked.round, masked.keys, masked.dropped) == ("a" * 32, 4, MASKED.keys, [0])
    assert metrics.tolist() == [[0.5, 0.5]] * 5
    assert store.load(5) is None
    assert PendingSum(tmp_path / "sum", "beef").load(4) is None
    store.delete()
    assert not list(tmp_path.iterdir())


def test_a_damaged_one_is_none(tmp_path: Path) -> None:
    store = PendingSum(tmp_path / "sum", "cafe")
    store.save(MASKED, torch.zeros(5, 2))
    (tmp_path / "sum.safetensors").write_bytes(b"damaged")
    assert store.load(4) is None
