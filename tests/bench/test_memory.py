from __future__ import annotations

import sys

import pytest
import torch

from fedquilt.bench.cases import SYNTHETIC, load_cases
from fedquilt.bench.measure import bench
from fedquilt.bench.memory import peak_memory

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
CPU = torch.device("cpu")


def test_peak_memory_is_that_of_a_process_of_its_own() -> None:
    (loaded,), _ = load_cases([SYNTHETIC], ["fedavg"], "cpu")
    found = peak_memory(loaded, "fedavg", CPU)
    assert (found.case, found.method) == (str(SYNTHETIC), "fedavg")
    assert 50 < found.loaded_mb < found.peak_mb < 2000


def test_memory_that_cannot_be_measured_is_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    (loaded,), _ = load_cases([SYNTHETIC], ["fedavg"], "cpu")
    monkeypatch.setattr(sys, "executable", "false")
    result = bench([loaded], ["fedavg"], 1, CPU, with_memory=True)
    assert result.memory == []
    (sentence,) = result.left_out
    assert sentence.startswith(f"The memory of fedavg on {SYNTHETIC} is left out: ")
    assert sentence.endswith("ended with status 1.")
