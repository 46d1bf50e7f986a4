"""Where a run computes."""

from __future__ import annotations

import pytest
import torch

from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError


@pytest.mark.parametrize(("there", "kind"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_cuda_where_there_is_one(there: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert pick_device("auto") == torch.device(kind)
    assert pick_device("cpu") == torch.device("cpu")


def test_a_device_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(FedquiltError, match="This machine has no CUDA device that PyTorch can use; use --device cpu"):
        pick_device("cuda")
    with pytest.raises(FedquiltError, match="There is no device 'tpu'; use auto, cpu or cuda"):
        pick_device("tpu")
