"""Dot products of pairs by the private operator and by public ones, against a loop."""

from __future__ import annotations

import types

import pytest
import torch

from fedquilt.devices import embedding_bag
from fedquilt.devices.embedding_bag import pair_products
from support.clients import assert_near


@pytest.mark.parametrize("public", [False, True], ids=["private", "public"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_pairs(monkeypatch: pytest.MonkeyPatch, public: bool, dtype: torch.dtype) -> None:
    stream = torch.Generator().manual_seed(0)
    rows, pairs = 6, 11
    c, z = (torch.randn(rows, 4, generator=stream, dtype=dtype) for _ in range(2))
    source = torch.randint(0, rows, (pairs,), generator=stream).sort().values.int()
    target = torch.randint(0, rows, (pairs,), generator=stream).int()
    offsets = torch.searchsorted(source, torch.arange(rows, dtype=torch.int32), out_int32=True)
    expected = torch.stack([c[u] @ z[v] for u, v in zip(source.tolist(), target.tolist(), strict=True)])
    if public:
        ops = types.SimpleNamespace(aten=types.SimpleNamespace())
        monkeypatch.setattr(embedding_bag, "torch", types.SimpleNamespace(ops=ops))
    assert_near(pair_products(c, z, source, target, offsets), expected)
