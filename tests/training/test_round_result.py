"""The outcome of a round: means over clients, byte counts, and reading it."""

from __future__ import annotations

import math

import torch

from fedquilt.training.engines.base import Evaluation
from fedquilt.training.round_result import RoundOutput, mean


def test_the_mean_leaves_undefined_values_out() -> None:
    values = torch.tensor([0.5, math.nan, 1.0])
    assert mean(values) == 0.75
    assert math.isnan(mean(torch.tensor([math.nan])))


def test_byte_counts_that_depend_on_values_come_in_order_uploads_first() -> None:
    one, two = torch.tensor(3), torch.tensor(5)
    output = RoundOutput(0, torch.arange(2), {"a": one, "b": 4}, {"c": two}, None)
    assert output.counts_on_device() == [one, two]


def test_reading_copies_counts_and_metrics() -> None:
    rows = torch.arange(10.0).view(5, 2)
    output = RoundOutput(7, torch.arange(2), {"a": torch.tensor(3)}, {"b": 4}, Evaluation(*rows))
    result = output.read(0.5, better=True)
    assert (result.round, result.bytes_up, result.bytes_down) == (7, {"a": 3}, {"b": 4})
    assert type(result.bytes_up["a"]) is int
    assert (result.val, result.better) == (0.5, True)
    assert torch.equal(result.metrics, rows)
    assert RoundOutput(7, torch.arange(2), {}, {}, None).read().metrics is None


def test_reading_copies_diagnostics() -> None:
    output = RoundOutput(7, torch.arange(2), {}, {}, None, {"effective_clients": torch.tensor(2.5)})
    assert output.read().diagnostics == {"effective_clients": 2.5}
