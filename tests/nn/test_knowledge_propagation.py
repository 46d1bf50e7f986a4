"""Products with matrices of all pairs that are never written out, against the same written out client by client."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.nn.knowledge_propagation import Kernel, Propagation, pooled
from support.clients import Largest, assert_near, equal_clients, gcn_operator, hard_clients, lay, numbers, with_weights


def plain_kernel(probabilities: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """K and top of one client, as matrices."""
    y = probabilities.double().numpy()
    z = y / np.linalg.norm(y, axis=1, keepdims=True)
    similarity = z @ z.T
    degree = similarity.sum(1)
    top = np.sqrt(degree / degree.sum())
    return similarity / np.sqrt(np.outer(degree, degree)), np.outer(top, top)


@pytest.mark.parametrize("layout", ["padded", "compact"])
def test_products_equal_those_with_matrices(layout: str) -> None:
    clients = with_weights(hard_clients())
    cohort = lay(clients, layout)
    soft, h = (2 * numbers(1, cohort.rows, 3)).softmax(1), numbers(2, cohort.rows, 4)
    kernel = Kernel.of(cohort, soft)
    spread = Propagation(cohort, kernel, 0.3)
    terms = [numbers(seed, cohort.rows, 4) for seed in (3, 4, 5)]
    found = {
        "kernel": kernel.times(cohort, h),
        "expected": kernel.expected(cohort, h),
        "mixed": spread @ h,
        "polynomial": spread.polynomial(terms),
    }
    for m, client in enumerate(clients):
        k, e = plain_kernel(cohort.parts_of(soft)[m])
        p = 0.3 * gcn_operator(client) + 0.7 * k
        own = cohort.parts_of(h)[m].double().numpy()
        x, y, z = (cohort.parts_of(term)[m].double().numpy() for term in terms)
        expected = {"kernel": k @ own, "expected": e @ own, "mixed": p @ own, "polynomial": x + p @ y + p @ p @ z}
        for name, value in expected.items():
            assert_near(cohort.parts_of(found[name])[m], torch.from_numpy(value))


def test_the_expected_part_is_the_kernels_first_eigenvector() -> None:
    cohort = lay(hard_clients(), "padded")
    kernel = Kernel.of(cohort, numbers(1, cohort.rows, 3).softmax(1))
    assert_near(kernel.times(cohort, kernel.top), kernel.top)
    assert_near(pooled(cohort, kernel.top, kernel.top).flatten(), torch.ones(cohort.clients))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_ends_of_alpha(alpha: float) -> None:
    cohort = lay(hard_clients(), "compact")
    soft, h = numbers(1, cohort.rows, 3).softmax(1), numbers(2, cohort.rows, 4)
    kernel = Kernel.of(cohort, soft)
    expected = cohort.gcn @ h if alpha else kernel.times(cohort, h)
    assert_near(Propagation(cohort, kernel, alpha) @ h, expected)


def test_gradients_equal_those_of_the_matrices() -> None:
    client = hard_clients()[4]
    cohort = lay([client], "padded")
    start, h = numbers(1, cohort.rows, 3), numbers(2, cohort.rows, 2)

    def by_factors(logits: torch.Tensor) -> torch.Tensor:
        kernel = Kernel.of(cohort, logits.softmax(1))
        return ((kernel.times(cohort, h) - kernel.expected(cohort, h)) ** 2).sum()

    def by_matrices(logits: torch.Tensor) -> torch.Tensor:
        z = torch.nn.functional.normalize(logits.softmax(1), dim=1)
        similarity = z @ z.T
        degree = similarity.sum(1)
        top = (degree / degree.sum()).sqrt()
        kernel = similarity / (degree.unsqueeze(1) * degree).sqrt() - torch.outer(top, top)
        return ((kernel @ h) ** 2).sum()

    one, two = start.clone().requires_grad_(), start.clone().requires_grad_()
    by_factors(one).backward()
    by_matrices(two).backward()
    assert_near(one.grad, two.grad)


def test_nothing_is_as_large_as_all_pairs() -> None:
    cohort = lay(equal_clients(2, 3000))
    soft, h = numbers(1, cohort.rows, 4).softmax(1), numbers(2, cohort.rows, 8)
    with Largest() as largest:
        kernel = Kernel.of(cohort, soft)
        Propagation(cohort, kernel, 0.5) @ h
        kernel.expected(cohort, h)
    assert largest.numbers <= 8 * cohort.rows
