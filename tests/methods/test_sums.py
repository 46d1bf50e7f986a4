"""Averages from sums over clients equal averages of uploads, for every method that says that sums are enough."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import Method, methods
from fedquilt.methods.sums import along_axis, mean_of_sums, weighted_summands
from fedquilt.training.plan import Plan
from support.federations import make_method, make_training, ragged_clients

FROM_SUMS = [name for name, kind in methods().items() if not kind.single_uploads]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in FROM_SUMS),
    ("quilt", {"evidence": False}),
    ("quilt", {"share": "layer,head,filter"}),
    ("quilt", {"share": "layer", "model": "gcn"}),
    ("quilt", {"model": "sage", "share": "head"}),
    ("fedhero", {"share": "all"}),
]


def one_round(name: str, settings: dict[str, Any]) -> tuple[Any, Message, torch.Tensor]:
    clients = ragged_clients(sparse=True)
    method = make_method(name, clients, **settings)
    engine = make_training(method, clients, Plan(1)).engine
    down = method.server_start()[1]
    here = torch.arange(len(clients))
    uploads, _ = engine.round(0, here, down, False)
    return method, uploads, here


def test_the_methods_that_do_with_sums() -> None:
    """They are those that are written for sums; the others say why not."""
    assert {"fedavg", "fedhero", "fedper", "fedprox", "quilt"} <= set(FROM_SUMS)
    for name, kind in methods().items():
        for verb in ("summands", "aggregate_sums"):
            written = getattr(kind, verb) is not getattr(Method, verb)
            assert written or kind.single_uploads or kind.uploads == (), name
            assert not (kind.single_uploads and verb in vars(kind)), name  # what it inherits is not used


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_sums_lead_to_the_same_download(name: str, settings: dict[str, Any]) -> None:
    method, uploads, here = one_round(name, settings)
    expected = method.aggregate(method.server_start()[0], uploads, here, here)
    each = method.summands(uploads)
    assert set(each) == set(uploads)
    sums = {key: value.sum(0) for key, value in each.items()}
    found = method.aggregate_sums(method.server_start()[0], sums, here)
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert found[key].dtype == torch.float32
        assert torch.allclose(dense(found[key]), dense(value), rtol=1e-5, atol=1e-6), key


def test_spread_is_unknown_from_sums() -> None:
    method, uploads, here = one_round("fedhero", {})
    server = method.server_start()[0]
    method.aggregate_sums(server, {key: value.sum(0) for key, value in method.summands(uploads).items()}, here)
    found = method.diagnostics(server)
    assert found["layer_spread"].isnan()
    assert found["weight_norm"] > 0


def test_a_mean_by_hand() -> None:
    uploads: Message = {"w": torch.tensor([[1.0, 2.0], [4.0, 8.0]]), "n": torch.tensor([1.0, 3.0])}
    each = weighted_summands(uploads, "n")
    assert each["w"].tolist() == [[1.0, 2.0], [12.0, 24.0]]
    found = mean_of_sums({name: value.sum(0) for name, value in each.items()}, "n")
    assert found["w"].tolist() == [3.25, 6.5]
    assert set(found) == {"w"}


def test_a_vector_along_an_axis() -> None:
    like = torch.zeros(2, 3, 4)
    assert along_axis(torch.ones(2), like, 0).shape == (2, 1, 1)
    assert along_axis(torch.ones(2, 3), like, 1).shape == (2, 3, 1)
