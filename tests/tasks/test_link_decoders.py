"""Decoders of link prediction against NumPy, and the embeddings of a mixture of models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.tasks.base import find_task
from fedquilt.tasks.link_decoders import DecoderName, decoder_of, directions, mixed_embeddings
from support.clients import assert_near, numbers

NAMES: list[DecoderName] = ["cosine", "dot", "mlp"]


def test_the_mlp_is_a_perceptron_of_both_nodes() -> None:
    """With any weights of its second layer: c ReLU(x) = sign(c) ReLU(|c| x)."""
    decode, rng = decoder_of("mlp", 3.0), np.random.default_rng(0)
    h, w, b, c = (
        rng.random((2, 5)),
        rng.standard_normal((5, 4)),
        rng.standard_normal(4),
        np.array([2.0, 0.5, -3.0, -1.0]),
    )
    perceptron = np.maximum((h[0] + h[1]) @ w + 2 * b, 0) @ c
    z = torch.from_numpy((h @ w + b) * np.abs(c))
    assert decode(z[:1], z[1:]).item() == pytest.approx(perceptron)
    assert decode(z[1:], z[:1]).item() == pytest.approx(perceptron)  # edges have no direction


@given(seed=st.integers(0, 2**31), scale=st.floats(0.1, 20), longer=st.floats(0.01, 100))
def test_the_cosine_reads_directions_alone(seed: int, scale: float, longer: float) -> None:
    u, v = numbers(seed, 5, 4) + 0.1, numbers(seed + 1, 5, 4) + 0.1
    a, b = u.double().numpy(), v.double().numpy()
    expected = scale * (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    decode = decoder_of("cosine", scale)
    assert_near(decode(u, v), torch.from_numpy(expected), 1e-4)
    assert_near(decode(longer * u, v), torch.from_numpy(expected), 1e-4)
    assert_near(decode(u, u), torch.full((5,), scale), 1e-4)


def test_an_embedding_without_length_has_no_direction_and_no_gradient() -> None:
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    found = directions(z)
    assert_near(found.detach(), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    found[:, 0].sum().backward()
    assert z.grad is not None
    assert z.grad[0].tolist() == [0.0, 0.0]
    assert z.grad[1].abs().sum() > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [4, 5])
def test_a_mixture_has_the_weighted_mean_of_the_logits(name: DecoderName, width: int) -> None:
    """Of three models; the weights differ between clients, and both ends of a pair belong to one."""
    views = [numbers(seed, 6, width) for seed in range(3)]
    weights = numbers(9, 2, 3).abs() + 0.1
    weights = weights / weights.sum(1, keepdim=True)
    owner = torch.tensor([0, 0, 0, 1, 1, 1])
    decode = decoder_of(name, 3.0)
    mixed = mixed_embeddings(name, views, weights[owner])
    for u, v in ((0, 1), (2, 0), (3, 5), (4, 4)):
        each = [decode(z[[u]], z[[v]]).item() for z in views]
        expected = sum(a * logit for a, logit in zip(weights[owner[u]].tolist(), each, strict=True))
        assert decode(mixed[[u]], mixed[[v]]).item() == pytest.approx(expected, abs=1e-5)
    task = find_task("link", {"decoder": name})
    assert torch.equal(task.mixture(views, weights, owner), mixed)
