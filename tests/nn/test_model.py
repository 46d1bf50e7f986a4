"""Start weights of every model."""

from __future__ import annotations

import math

import pytest
import torch

from fedquilt.nn.models import Model, common_start

CPU = torch.device("cpu")
KINDS = sorted(Model.kinds)


@pytest.mark.parametrize("kind", KINDS)
def test_start_is_glorot_with_zero_biases_and_the_same_for_everyone(kind: str) -> None:
    model = Model.kinds[kind](300, 64, 7)
    weights = common_start(model.shapes(), 3, 4, CPU)
    assert list(weights) == list(model.shapes())
    for name, shape in model.shapes().items():
        w = weights[name]
        assert w.shape == (4, *shape)
        assert w.dtype == torch.float32
        assert torch.equal(w, w[:1].expand_as(w))
        if len(shape) == 1:
            assert name.endswith(".bias")
            assert not w.any()
            continue
        bound = math.sqrt(6.0 / (shape[-2] + shape[-1]))
        assert float(w.abs().max()) <= bound
        if w[0].numel() > 1000:
            assert float(w.abs().max()) > 0.99 * bound
            # Uniform on [-bound, bound]: mean 0, standard deviation bound / sqrt(3).
            assert abs(float(w[0].mean())) < 5 * bound / math.sqrt(3 * w[0].numel())
            assert float(w[0].std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_start_depends_on_the_seed_alone(kind: str) -> None:
    model = Model.kinds[kind](6, 8, 3)
    one = common_start(model.shapes(), 0, 3, CPU)
    torch.manual_seed(123)
    torch.rand(10)
    again, more, other = (common_start(model.shapes(), seed, n, CPU) for seed, n in ((0, 3), (0, 11), (1, 3)))
    for name in one:
        assert torch.equal(one[name], again[name])
        assert torch.equal(one[name][0], more[name][10])
        assert torch.equal(one[name], other[name]) == name.endswith(".bias")


def test_start_weights_of_clients_are_not_one_memory() -> None:
    """Clients train their own: a change of one client's weights must not reach another's."""
    weights = common_start(Model.kinds["gcn"](6, 8, 3).shapes(), 0, 3, CPU)
    before = weights["conv1.weight"][1].clone()
    weights["conv1.weight"][0].add_(1.0)
    assert torch.equal(weights["conv1.weight"][1], before)
