"""Before training it is said whether edge weights are used."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fedquilt.methods.base import methods
from fedquilt.training.edge_notice import announce_edge_weights, unused_weights
from support.clients import with_weights
from support.federations import make_method, ragged_clients

CLIENTS = ragged_clients((9, 9))
USED = "Edges have weights"


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        *((name, {}, USED) for name in methods() if not make_method(name, CLIENTS).ignores_edge_weights()),
        ("majority", {}, "Edge weights are not used by Majority: it does not read edges."),
        ("mlp", {}, "Edge weights are not used by MLP: model=mlp does not read edges."),
        ("fedavg", {"model": "mlp"}, "Edge weights are not used by FedAvg: model=mlp does not read edges."),
        ("quilt", {"model": "mlp"}, "Edge weights are not used by Quilt: model=mlp does not read edges."),
        ("fedavg", {"model": "gat"}, USED),
    ],
)
def test_each_method_says_it(name: str, settings: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedquilt")
    method = make_method(name, CLIENTS, **settings)
    announce_edge_weights(method, CLIENTS[0].graph)
    assert not caplog.text
    graph = with_weights(CLIENTS)[0].graph
    announce_edge_weights(method, graph)
    (record,) = caplog.records
    assert record.getMessage().startswith(said)
    assert record.levelname == ("INFO" if said is USED else "WARNING")
    assert unused_weights(method, graph) == (None if said is USED else said)
