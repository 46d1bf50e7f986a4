"""Outputs that are computed part by part are those of the whole graph."""

from __future__ import annotations

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.nn import layerwise
from fedquilt.nn.layerwise import outputs_in_parts
from fedquilt.nn.models import Model, common_start
from support.federations import ragged_clients


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("layers", [1, 2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", list(Model.kinds))
def test_outputs_are_exact(kind: str, layers: int, sparse: bool) -> None:
    cohort = Cohort(ragged_clients((40, 9, 60), sparse))
    model = Model.kinds[kind](cohort.features, 8, 3, layers)
    weights = {n: w + 0.1 * torch.randn_like(w) for n, w in common_start(model.shapes(), 0, 3, cohort.device).items()}
    whole = model(cohort, weights)
    found = outputs_in_parts(model, cohort, weights, 15)
    assert torch.allclose(found.logits[cohort.nodes], whole.logits[cohort.nodes], atol=1e-5)
    assert torch.allclose(found.embedding[cohort.nodes], whole.embedding[cohort.nodes], atol=1e-5)
    assert torch.equal(outputs_in_parts(model, cohort, weights, 15, embedding=False).logits, found.logits)


def test_outputs_can_be_differentiated() -> None:
    """So that an exported model can be trained further."""
    cohort = Cohort(ragged_clients((40, 9)))
    model = Model.kinds["gcn"](cohort.features, 8, 3)
    weights = common_start(model.shapes(), 0, 2, cohort.device)
    leaves = {name: w.requires_grad_() for name, w in weights.items()}
    rows, factor = cohort.nodes, torch.randn(len(cohort.nodes), 3)
    each = []
    for logits in (model(cohort, leaves).logits, outputs_in_parts(model, cohort, leaves, 15).logits):
        each.append(torch.autograd.grad((logits[rows] * factor).sum(), list(leaves.values())))
    assert all(torch.allclose(one, two, atol=1e-4) for one, two in zip(*each, strict=True))


def test_layers_see_parts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    make = layerwise.surroundings

    def watched(*args: object, **named: object) -> object:
        for part in make(*args, **named):  # type: ignore[arg-type]
            sizes.append(part.rows)
            yield part

    monkeypatch.setattr(layerwise, "surroundings", watched)
    line = ragged_clients((60,))[0]
    edges = torch.stack([torch.arange(59), torch.arange(1, 60)]).numpy()
    cohort = Cohort([line.__class__(0, line.graph.with_edges(edges), line.split)])
    model = Model.kinds["gcn"](cohort.features, 8, 3)
    outputs_in_parts(model, cohort, common_start(model.shapes(), 0, 1, cohort.device), 10)
    assert len(sizes) == 12
    assert max(sizes) < 30
