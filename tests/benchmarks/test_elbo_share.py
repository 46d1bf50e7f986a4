"""The shares of FedIIH's terms in its gradient are those of the gradient that it trains with."""

from __future__ import annotations

import pytest
import torch
from benchmarks.elbo_share import PROJECTION, shares

from fedquilt.cohort.cohort import Cohort
from fedquilt.methods.base_adam import KEYS
from fedquilt.nn.dropout import Dropout
from support.clients import numbers
from support.federations import make_method, ragged_clients


@pytest.mark.parametrize("centre", ["own", "global"])
def test_shares_are_norms_of_differences_of_whole_gradients(centre: str) -> None:
    clients = ragged_clients((9, 14))
    cohort, down = Cohort(clients), {"alpha": numbers(0, 8)}
    made = {
        kl: make_method("fediih", clients, factors=2, elbo=0.5, kl=kl, centre=centre, dropout=0.0)
        for kl in (0.0, 1.0, 10.0)
    }
    state = made[1.0].start(cohort)
    state["alpha"] += 0.3 * numbers(1, 2, 8)
    drawn = Dropout(0.0, state[KEYS], 5)
    plain = make_method("fediih", clients, factors=2, elbo=0.0, dropout=0.0)
    cross = plain.gradients(dict(state), cohort, drawn, down)[0][PROJECTION]
    whole = {kl: method.gradients(dict(state), cohort, drawn, down)[0][PROJECTION] for kl, method in made.items()}
    found = {kl: shares(method, state, cohort, drawn, down) for kl, method in made.items()}

    def relative(part: torch.Tensor) -> float:
        return float((part.flatten(1).norm(dim=1) / cross.flatten(1).norm(dim=1)).mean())

    assert found[1.0]["reconstruction"] == pytest.approx(relative(whole[0.0] - cross), rel=1e-3)
    assert found[10.0]["priors"] == pytest.approx(relative(whole[10.0] - whole[0.0]), rel=1e-2)
    assert found[10.0]["hierarchy"] == pytest.approx(10 * found[1.0]["hierarchy"], rel=1e-3)
    assert found[10.0]["hierarchy"] > 0
    assert found[0.0]["priors"] == 0
