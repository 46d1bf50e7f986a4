"""The network of two channels against a dense client on its own, written from the paper's code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.model import LayeredModel
from fedquilt.nn.models import Model, common_start
from fedquilt.nn.random_walks import embedding_of
from fedquilt.nn.two_channels import TwoChannels
from support.clients import LAYOUTS, assert_near, dense_adjacency, dense_features, lay, numbers, random_client

WALKS, DEGREES, HIDDEN, OUTPUTS = 4, 3, 5, 3


def network(kind: str, layers: int = 2) -> TwoChannels:
    layer = Model.kinds[kind](6, HIDDEN, OUTPUTS, layers)
    assert isinstance(layer, LayeredModel)
    return TwoChannels(layer, WALKS, DEGREES, "both")


def clients() -> list[Client]:
    rng = np.random.default_rng(7)
    return [random_client(rng, m, nodes=n) for m, n in enumerate((9, 13))]


def weights_of(net: TwoChannels) -> dict[str, Tensor]:
    start = common_start(net.shapes(), 1, 2, torch.device("cpu"))
    return {name: w + 0.2 * numbers(i, *w.shape) for i, (name, w) in enumerate(start.items())}


def plain(client: Client, w: dict[str, Tensor], layers: int, kind: str) -> Tensor:
    a = torch.from_numpy(dense_adjacency(client)).double()
    loops = a + torch.eye(len(a), dtype=torch.float64)
    gcn = loops / torch.outer(loops.sum(1), loops.sum(1)).sqrt()
    mean = a / a.sum(1, keepdim=True).clamp_min(1.0)
    x = torch.from_numpy(dense_features(client)).double() @ w["projection.weight"] + w["projection.bias"]
    s = torch.from_numpy(embedding_of(client, WALKS, DEGREES, "both")).double()
    s = s @ w["structure.weight"] + w["structure.bias"]
    for layer in range(1, layers + 1):
        both = torch.cat([x, s], dim=1)
        if kind == "gcn":
            x = gcn @ both @ w[f"conv{layer}.weight"]
        else:
            x = mean @ both @ w[f"conv{layer}.weight"] + both @ w[f"conv{layer}.root"]
        x = torch.relu(x + w[f"conv{layer}.bias"])
        s = torch.tanh(gcn @ s @ w[f"structure.conv{layer}.weight"] + w[f"structure.conv{layer}.bias"])
    joined = torch.relu(torch.cat([x, s], dim=1) @ w["join.weight"] + w["join.bias"])
    return joined @ w["classifier.weight"] + w["classifier.bias"]


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize(("kind", "layers"), [("gcn", 1), ("gcn", 2), ("sage", 3)])
def test_outputs_are_those_of_a_dense_client(rows: str, features: str, kind: str, layers: int) -> None:
    net, cohort = network(kind, layers), lay(clients(), rows, features)
    weights = weights_of(net)
    found = net(cohort, weights).logits
    for m, (own, client) in enumerate(zip(cohort.parts_of(found), clients(), strict=True)):
        expected = plain(client, {name: w[m].double() for name, w in weights.items()}, layers, kind)
        assert_near(own, expected.float(), 1e-5)
    none = Dropout(0.0, torch.zeros(2, dtype=torch.int64), 0)
    trained = net.training(cohort, weights, none).logits[cohort.training.real]
    assert_near(trained, found[cohort.train], 1e-5)


def test_the_structure_channel_reads_no_features() -> None:
    net, cohort = network("gcn"), lay(clients(), "padded", "dense")
    weights = weights_of(net)
    other = {name: w if name.startswith("structure") else torch.randn_like(w) for name, w in weights.items()}
    one, two = (net.before_last(cohort, w, None) for w in (weights, other))
    assert torch.equal(one[1], two[1])
    assert not torch.equal(one[0], two[0])
