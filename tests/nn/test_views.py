"""The mixture of views against NumPy, and each view against its own network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.filters import FILTER, FilterNet
from fedquilt.nn.gpr import GprNet
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Mlp, Sage, common_start
from fedquilt.nn.views import MIXTURE, Views, mixture_weights, prefix_of, sound, votes_of
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import find_task
from support.clients import PADDING, assert_near, client_lists, lay, numbers
from support.federations import CLASSES, FEATURES, ragged_clients

NETWORKS = {
    "mlp": Mlp(FEATURES, 8, CLASSES, 1),
    "filter": FilterNet(FEATURES, 8, CLASSES, 2, 3, 0, 0.2, "monomial"),
    "gpr": GprNet(FEATURES, 8, CLASSES, 4, 0.8),
    "sage": Sage(FEATURES, 6, CLASSES),
}
MIX = find_task(NODE_CLASSIFICATION).mixture
VIEWS = Views(NETWORKS, {"filter": (FILTER,)}, MIX)


def stirred(clients: int) -> Weights:
    """Weights that differ between clients, and a mixture in which the last view has none."""
    weights = {name: numbers(place, clients, *shape) for place, (name, shape) in enumerate(VIEWS.shapes().items())}
    mixture = numbers(90, clients, 4).abs() + 0.1
    mixture[:, 3] = 0.0
    return weights | {FILTER: numbers(91, clients, 3, 3), MIXTURE: mixture / mixture.sum(1, keepdim=True)}


def test_outputs_are_logarithms_of_the_mixture_of_the_views_probabilities() -> None:
    cohort = Cohort(ragged_clients())
    weights = stirred(cohort.clients)
    mixture = weights[MIXTURE].double().numpy()[cohort.client]
    expected = np.zeros((cohort.rows, CLASSES))
    for place, (view, network) in enumerate(NETWORKS.items()):
        mine = VIEWS.weights_of(view, weights)
        assert set(mine) == set(network.shapes()) | ({FILTER} if view == "filter" else set())
        logits = network(cohort, mine).logits.double().numpy()
        expected += mixture[:, place : place + 1] * softmax(logits, axis=1)
    assert_near(VIEWS(cohort, weights).logits, torch.from_numpy(np.log(expected)), 1e-5)


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(most=4), seed=st.integers(0, 2**31), places=st.sets(st.integers(0, 3), min_size=1))
def test_some_views_are_mixed_by_the_weights_at_their_places(
    rows: str, clients: list[Client], seed: int, places: set[int]
) -> None:
    """Each client's own; weights that do not sum to one leave a constant, and a view without weight says nothing."""
    cohort = lay(clients, rows)
    logits = {place: 3 * numbers(seed + place, cohort.rows, CLASSES) for place in sorted(places)}
    mixture = numbers(seed + 9, cohort.clients, 4).abs() + 0.01
    found = VIEWS.mixed(cohort, logits, mixture)
    for m in range(cohort.clients):
        p = sum(
            float(mixture[m, place]) * softmax(cohort.parts_of(one)[m].double().numpy(), axis=1)
            for place, one in logits.items()
        )
        assert_near(cohort.parts_of(found)[m], torch.from_numpy(np.log(p)), 1e-5)
    if len(places) > 1:
        without = min(places)
        mixture[:, without] = 0.0
        fewer = {place: one for place, one in logits.items() if place != without}
        assert_near(VIEWS.mixed(cohort, logits, mixture), VIEWS.mixed(cohort, fewer, mixture), 1e-6)


def test_a_view_without_weight_is_not_computed() -> None:
    cohort = Cohort(ragged_clients())
    weights = stirred(cohort.clients)
    broken = weights | {name: w * torch.nan for name, w in weights.items() if name.startswith(prefix_of("sage"))}
    found = VIEWS(cohort, broken)
    assert torch.equal(found.logits, VIEWS(cohort, weights).logits)
    assert found.embedding.shape == (cohort.rows, 8 + 8 + 8)


def test_gradients_reach_the_views_that_count() -> None:
    cohort = Cohort(ragged_clients())
    leaves = {name: w.clone().requires_grad_() for name, w in stirred(cohort.clients).items()}
    VIEWS(cohort, leaves).logits.sum().backward()
    for name, leaf in leaves.items():
        assert (leaf.grad is None) == name.startswith(prefix_of("sage")), name


def test_each_view_starts_as_it_would_alone() -> None:
    start = VIEWS.start(5, 2, torch.device("cpu"))
    assert set(start) == set(VIEWS.shapes())
    for view, network in NETWORKS.items():
        for name, w in common_start(network.shapes(), 5, 2, torch.device("cpu")).items():
            assert torch.equal(start[prefix_of(view) + name], w)


def test_what_reads_features_and_edges_is_said_of_all_views() -> None:
    assert VIEWS.feature_weights == (
        *("view.mlp.conv1.weight", "view.filter.hidden.weight", "view.gpr.hidden.weight"),
        *("view.sage.conv1.weight", "view.sage.conv1.root"),
    )
    assert VIEWS.ignores_edge_weights == ""
    assert Views({"mlp": NETWORKS["mlp"]}, {}, MIX).ignores_edge_weights == "model=mlp does not read edges"
    with pytest.raises(NotImplementedError):
        VIEWS.training(Cohort(ragged_clients()), {}, None)  # type: ignore[arg-type]


@given(points=st.lists(st.lists(st.floats(-100, 100), min_size=3, max_size=3), min_size=1, max_size=4))
def test_votes_fall_by_one_in_ten_points(points: list[list[float]]) -> None:
    alive = torch.tensor([True, True, False])
    votes = votes_of(torch.tensor(points), alive, 10.0)
    for row, found in zip(points, votes.tolist(), strict=True):
        best = max(row[:2])
        assert found[:2] == pytest.approx([max(0.0, 1 - (best - p) / 10) for p in row[:2]], abs=1e-4)
        assert found[2] == 0.0


def test_a_client_that_cannot_tell_votes_for_all_alike() -> None:
    votes = votes_of(torch.tensor([[torch.nan, 3.0], [1.0, 1.0]]), torch.tensor([True, True]), 10.0)
    assert votes.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@given(seed=st.integers(0, 2**31), points=st.floats(0, 20))
def test_mixture_weights_equal_numpy(seed: int, points: float) -> None:
    own, everyone = numbers(seed, 4, 3).sigmoid(), numbers(seed + 1, 4, 3).sigmoid()
    everyone[:, 1] = -1.0  # dropped
    trust = torch.tensor([0.0, 0.3, 0.9, 1.0])
    votes = everyone.double().numpy() + trust.double().numpy()[:, None] * (own - everyone).double().numpy()
    weight = np.exp(points * votes)
    weight[:, 1] = 0.0
    expected = weight / weight.sum(1, keepdims=True)
    found = mixture_weights(own, everyone, trust, points)
    assert_near(found, torch.from_numpy(expected), 1e-5)
    assert not found[:, 1].any()


def test_a_mixture_that_is_none_is_all_alike_and_a_sound_one_is_left_alone() -> None:
    mixture = torch.tensor([[0.2, 0.8, 0.0], [-0.1, 0.0, -2.0], [0.5, -0.5, 0.25]])
    assert sound(mixture).tolist() == [mixture[0].tolist(), [pytest.approx(1 / 3)] * 3, [0.5, 0.0, 0.25]]
    assert torch.equal(sound(mixture[:1]), mixture[:1])
