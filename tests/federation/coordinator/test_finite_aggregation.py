"""Aggregation is retried without the largest upload until its result is finite."""

from __future__ import annotations

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.finite_aggregation import FiniteAggregation
from fedquilt.messages.message import Sparse, dense
from fedquilt.methods.base import find_method
from support.tampering import W


def test_aggregation_is_retried_without_the_largest_upload() -> None:
    """Each upload passes by itself; the server's step does not."""

    class Squaring:
        uploads = find_method("fedavg").uploads

        def aggregate(self, server: dict, uploads: dict, senders: torch.Tensor, receivers: torch.Tensor) -> dict:
            server["seen"] += len(senders)
            if bool((dense(uploads[W]) > 5).any()):
                raise torch.linalg.LinAlgError("no roots")
            return {W: torch.exp(dense(uploads[W]).sum(0) ** 3)}

    unused: list[tuple[int, str]] = []
    aggregate = FiniteAggregation(Squaring(), lambda m, why: unused.append((m, why)))  # type: ignore[arg-type]
    server = {"seen": torch.zeros(1)}
    uploads = {W: Sparse(torch.tensor([[1.0], [9.0], [4.9], [0.5]]))}
    down = aggregate(server, uploads, torch.tensor([2, 3, 5, 7]), torch.arange(8))
    assert unused == [(3, "leads to numbers that are not finite"), (5, "leads to numbers that are not finite")]
    assert float(down[W]) == pytest.approx(float(torch.exp(torch.tensor(1.5**3))))
    assert float(server["seen"]) == 2
    with pytest.raises(FedquiltError, match="No upload of this round"):
        aggregate(server, {W: torch.tensor([[9.0]])}, torch.tensor([2]), torch.arange(8))
    assert float(server["seen"]) == 2
