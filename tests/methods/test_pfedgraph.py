"""pFedGraph: a collaboration graph from cosines and data sizes, and a cosine term in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fedquilt.errors import FedquiltError
from fedquilt.methods.pfedgraph import COSINE, PFedGraph, cosine_gradient, moved_cosine
from support.clients import assert_near
from support.federations import make_method, make_task, newest_uploads, ragged_clients, tapped_run


def make(epochs: int = 1, **settings: Any) -> PFedGraph:
    clients = ragged_clients()
    return make_method("pfedgraph", clients, make_task(clients, epochs=epochs), **settings)


def solved(cosine: np.ndarray, sizes: np.ndarray, alpha: float) -> np.ndarray:
    """The quadratic program of one client, by scipy."""
    return minimize(
        lambda w: alpha * ((w - sizes) ** 2).sum() - cosine @ w,
        sizes,
        jac=lambda w: 2 * alpha * (w - sizes) - cosine,
        bounds=[(0, None)] * len(sizes),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).x


@pytest.mark.parametrize("alpha", [0.05, 0.8, 20.0])
def test_weights_solve_the_program(alpha: float) -> None:
    rng = np.random.default_rng(5)
    cosine, nodes = rng.uniform(-1, 1, (3, 6)), rng.uniform(1, 9, 6)
    sizes = nodes / nodes.sum()
    found = make(alpha=alpha).collaboration(torch.from_numpy(cosine), torch.from_numpy(sizes)).numpy()
    for row, weights in zip(cosine, found, strict=True):
        assert np.abs(weights - solved(row, sizes, alpha)).max() < 1e-4


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_averages_equal_numpy(participation: float) -> None:
    method = make(alpha=0.4)
    training, tap = tapped_run(method, ragged_clients(), 4, participation)
    start = {name: w.double().numpy() for name, w in method.public_start().items()}
    whole = np.eye(5)
    parts = [r["participants"] if r["participants"] != "all" else list(range(5)) for r in training.records]
    for r, (here, up) in enumerate(newest_uploads(training, tap)):
        there = [*parts, []][r + 1]
        moved = np.concatenate([(up[name] - w).reshape(len(here), -1) for name, w in start.items()], 1)
        length = np.linalg.norm(moved, axis=1)
        whole[np.ix_(here, here)] = moved @ moved.T / np.outer(length, length)
        if not there:  # nothing is sent after the last round
            break
        sizes = up["train_nodes"] / up["train_nodes"].sum()
        weights = np.stack([solved(row, sizes, 0.4) for row in whole[np.ix_(there, here)]])
        for name in start:
            expected = np.einsum("ij,j...->i...", weights, up[name])
            assert np.abs(tap.downs[r + 1][name].numpy() - expected).max() < 1e-3
    assert_near(training.runner.server[COSINE], torch.from_numpy(whole).float())


def test_the_graph_favours_who_moved_alike() -> None:
    """Two groups that moved in opposite directions: no average holds the other group; with a large alpha all do."""
    began = {"w": torch.zeros(3)}
    direction = torch.tensor([[1.0, 0.1, 0.0], [1.0, 0.0, 0.1], [-1.0, 0.1, 0.0], [-1.0, 0.0, 0.1]])
    cosine = moved_cosine({"w": direction}, began)
    sizes = torch.full((4,), 0.25)
    weights = make(alpha=0.8).collaboration(cosine, sizes)
    assert bool((weights[:2, 2:] == 0).all() and (weights[2:, :2] == 0).all())
    assert float((make(alpha=1e4).collaboration(cosine, sizes) - 0.25).abs().max()) < 1e-3
    alone = make(alpha=1e-4).collaboration(torch.eye(4), sizes)
    assert_near(alone, torch.eye(4))


def test_the_cosine_terms_gradient() -> None:
    rng = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(3, *shape, generator=rng, dtype=torch.float64) for name, shape in SHAPES.items()}
    received = {name: torch.randn(3, *shape, generator=rng, dtype=torch.float64) for name, shape in SHAPES.items()}
    leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
    own, other = (torch.cat([w.flatten(1) for w in each.values()], 1) for each in (leaves, received))
    torch.nn.functional.cosine_similarity(own, other).sum().backward()
    for name, found in cosine_gradient(weights, received).items():
        assert_near(found, leaves[name].grad)


SHAPES = {"a": (2, 3), "b": (4,)}


def test_the_cosine_term_acts_from_the_second_epoch_on() -> None:
    clients = ragged_clients()

    def ends(epochs: int, pull: float) -> torch.Tensor:
        return tapped_run(make(epochs, pull=pull), clients, 3, 1.0)[1].ups[-1]["model.conv1.weight"]

    assert torch.equal(ends(1, 0.0), ends(1, 5.0))
    assert not torch.allclose(ends(2, 0.0), ends(2, 5.0), atol=1e-4)


def test_settings_outside_their_range_are_refused() -> None:
    for setting in ({"alpha": 0.0}, {"alpha": -1.0}, {"pull": -0.1}):
        with pytest.raises(FedquiltError, match=next(iter(setting))):
            make(**setting)
