"""k-means over several problems at once: blobs are found, points that do not count do not count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.nn.k_means import ROUNDS, draw_count, k_means

seeds = st.integers(0, 2**31)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform(points: Tensor, clusters: int, seed: int = 0) -> Tensor:
    return torch.rand(draw_count(*points.shape[:2], clusters), generator=stream(seed))


def together(label: Tensor | Sequence[int]) -> list[list[bool]]:
    """Which points lie in one cluster: the partition, whatever the clusters are called."""
    label = torch.as_tensor(label)
    return (label.unsqueeze(0) == label.unsqueeze(1)).tolist()


def blobs(rng: np.random.Generator, clusters: int, each: int, width: int, apart: float = 50.0) -> tuple[Tensor, Tensor]:
    """Points [clusters * each, d] around corners of a grid `apart` from each other, shuffled, and their blob."""
    corner = apart * np.stack(np.unravel_index(rng.permutation(3**width)[:clusters], (3,) * width), axis=1)
    blob = rng.permutation(np.repeat(np.arange(clusters), each))
    points = corner[blob] + rng.standard_normal((len(blob), width))
    return torch.from_numpy(points), torch.from_numpy(blob)


def everyone(points: Tensor) -> Tensor:
    return torch.ones(points.shape[:2], dtype=torch.bool)


@given(
    seed=seeds, problems=st.integers(1, 4), clusters=st.integers(1, 5), each=st.integers(1, 9), width=st.integers(2, 5)
)
def test_blobs_are_found_in_every_problem(seed: int, problems: int, clusters: int, each: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = [blobs(rng, clusters, each, width) for _ in range(problems)]
    points = torch.stack([p for p, _ in drawn])
    label = k_means(points, everyone(points), clusters, uniform(points, clusters, seed))
    assert label.shape == points.shape[:2]
    assert label.dtype == torch.int64
    assert (label >= 0).all()
    assert (label < clusters).all()
    for found, (_, blob) in zip(label, drawn, strict=True):
        assert together(found) == together(blob)


@pytest.mark.parametrize("fill", [0.0, 1e6, float("nan"), float("inf")])
def test_points_that_do_not_count(fill: float) -> None:
    rng = np.random.default_rng(0)
    drawn = [blobs(rng, 3, 6, 2) for _ in range(4)]
    points = torch.stack([p for p, _ in drawn])
    present = torch.from_numpy(rng.random((4, 18)) < 0.6)
    hidden = torch.where(present.unsqueeze(-1), points, fill)
    label = k_means(hidden, present, 3, uniform(hidden, 3))
    assert (label[~present] == -1).all()
    assert torch.equal(label, k_means(points, present, 3, uniform(points, 3)))
    for b, (_, blob) in enumerate(drawn):
        assert together(label[b][present[b]]) == together(blob[present[b]])


def test_a_problem_does_not_depend_on_its_neighbours_partition() -> None:
    """Blobs in one problem, noise in the other, each alone and together."""
    rng = np.random.default_rng(1)
    points, blob = blobs(rng, 3, 5, 2)
    noise = torch.from_numpy(rng.standard_normal((15, 2)))
    both = torch.stack([noise, points])
    label = k_means(both, everyone(both), 3, uniform(both, 3))
    assert together(label[1]) == together(blob)


@given(seed=seeds, points=st.integers(1, 6), absent=st.integers(0, 30), clusters=st.integers(6, 9))
def test_fewer_points_than_clusters_get_one_each(seed: int, points: int, absent: int, clusters: int) -> None:
    rng = np.random.default_rng(seed)
    where = torch.from_numpy(rng.standard_normal((2, points + absent, 3)))
    present = torch.zeros(2, points + absent, dtype=torch.bool)
    for row in present:
        row[rng.permutation(points + absent)[:points]] = True
    label = k_means(where, present, clusters, uniform(where, clusters, seed))
    assert (label[~present] == -1).all()
    for row, here in zip(label, present, strict=True):
        assert len(row[here].unique()) == points
        assert (row[here] < clusters).all()


@pytest.mark.parametrize("count", [5, 40])
def test_equal_points_share_a_cluster(count: int) -> None:
    same = torch.full((1, count, 3), 0.1)
    label = k_means(same, everyone(same), 3, uniform(same, 3))
    assert len(label.unique()) == 1
    assert int(label.min()) >= 0
    # Two places, each many times over, and more clusters than places.
    blob = torch.arange(count) % 2
    twice = torch.tensor([[0.1, 0.7], [3.3, -1.2]])[blob].unsqueeze(0)
    assert together(k_means(twice, everyone(twice), 4, uniform(twice, 4))[0]) == together(blob)


def test_a_problem_without_points() -> None:
    rng = np.random.default_rng(0)
    points, blob = blobs(rng, 2, 4, 2)
    present = torch.tensor([[False] * 8, [True] * 8, [False] * 7 + [True]])
    label = k_means(points.expand(3, -1, -1), present, 2, uniform(points.expand(3, -1, -1), 2))
    assert label[0].tolist() == [-1] * 8
    assert together(label[1]) == together(blob)
    assert label[2, :7].tolist() == [-1] * 7
    assert int(label[2, 7]) in (0, 1)


def test_one_cluster_and_one_point() -> None:
    points = torch.randn(2, 7, 3, generator=stream())
    assert not k_means(points, everyone(points), 1, uniform(points, 1)).any()
    assert k_means(points[:, :1], everyone(points[:, :1]), 4, uniform(points[:, :1], 4)).tolist() == [[0], [0]]


@given(seed=seeds)
def test_a_seed_gives_one_answer_and_inputs_stay(seed: int) -> None:
    points = torch.randn(3, 20, 2, generator=stream(seed)).requires_grad_()
    present = torch.rand(3, 20, generator=stream(seed + 1)) < 0.8
    before = points.detach().clone(), present.clone()
    torch.manual_seed(seed)
    one = k_means(points, present, 4, uniform(points, 4, seed))
    torch.manual_seed(seed + 1)
    assert torch.equal(k_means(points, present, 4, uniform(points, 4, seed)), one)
    assert torch.equal(points.detach(), before[0])
    assert torch.equal(present, before[1])
    assert not one.requires_grad


def numpy_k_means(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The same of one problem [n, d] by the book: starts by k-means++ from u [restarts, k, n], then Lloyd's iterations."""
    found = []
    for start in u:
        centre: list[np.ndarray] = []
        for row in start:
            near = [((x - c) ** 2).sum(1) for c in centre]
            centre.append(x[np.argmax((np.min(near, axis=0) if near else 1.0) / -np.log(row))])
        c = np.stack(centre)
        for _ in range(ROUNDS):
            label = ((x[:, None] - c) ** 2).sum(2).argmin(1)
            c = np.stack([x[label == k].mean(0) if (label == k).any() else c[k] for k in range(len(c))])
        gap = ((x[:, None] - c) ** 2).sum(2)
        found.append((gap.min(1).sum(), gap.argmin(1)))
    return min(found, key=lambda each: each[0])[1]


@pytest.mark.parametrize("seed", range(4))
def test_it_is_lloyds_iteration_from_the_best_of_some_starts(seed: int) -> None:
    points = torch.randn(3, 30, 2, generator=stream(seed), dtype=torch.float64)
    given_numbers = torch.rand(draw_count(3, 30, 5), generator=stream(seed + 1), dtype=torch.float64)
    label = k_means(points, everyone(points), 5, given_numbers)
    for b in range(3):
        assert label[b].tolist() == numpy_k_means(points[b].numpy(), given_numbers[:, b].numpy()).tolist()


def test_as_good_as_scikit_learns() -> None:
    """On points without clear clusters, where only the sum of squares tells a good answer."""
    cluster = pytest.importorskip("sklearn.cluster")
    points = torch.randn(6, 60, 2, generator=stream(3), dtype=torch.float64)
    label = k_means(points, everyone(points), 4, uniform(points, 4))
    for mine, found in zip(points.numpy(), label.numpy(), strict=True):
        cost = sum(((mine[found == k] - mine[found == k].mean(0)) ** 2).sum() for k in np.unique(found))
        best = cluster.KMeans(4, n_init=20, random_state=0).fit(mine).inertia_
        assert cost <= 1.1 * best
