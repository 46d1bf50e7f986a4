"""Draws and divergences of inferred Gaussians equal their formulas, and their gradients autograd's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.nn.gaussians import kl_diagonal
from fedquilt.nn.posterior import draw_and_compare
from support.clients import PADDING, assert_near, lay, numbers, random_client


@pytest.mark.parametrize("rows", PADDING)
def test_values_and_gradients_are_those_of_plain_formulas(rows: str) -> None:
    rng = np.random.default_rng(0)
    cohort = lay([random_client(rng, m, n) for m, n in enumerate((5, 1, 9))], rows)
    noise, pull = numbers(3, cohort.rows, 4), numbers(4, cohort.rows, 4)
    found = []
    for plain in (False, True):
        mean = numbers(0, cohort.rows, 4).requires_grad_()
        offset, centre = numbers(1, 3, 4).requires_grad_(), numbers(2, 3, 4).requires_grad_()
        if plain:
            logvar = mean + offset[cohort.client]
            sample = mean + (0.5 * logvar).exp() * noise
            each = kl_diagonal(mean, logvar, centre[cohort.client], 0.25)
            parts = [part.mean() for part in cohort.parts_of(each)]
            apart = torch.stack(parts).sum()
        else:
            sample, apart = draw_and_compare(cohort, mean, offset, centre, 0.25, noise)
        leaves = (mean, offset, centre)
        whole = torch.autograd.grad((sample * pull).sum() + 1.7 * apart, leaves, retain_graph=True)
        drawn = torch.autograd.grad((sample * pull).sum(), leaves, retain_graph=True, allow_unused=True)
        priors = torch.autograd.grad(apart, leaves)
        assert drawn[2] is None or not drawn[2].any()
        found.append([sample.detach(), apart.detach(), *whole, *drawn[:2], *priors])
    for one, two in zip(*found, strict=True):
        assert_near(one, two, 1e-4)
