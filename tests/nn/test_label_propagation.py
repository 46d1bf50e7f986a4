"""Label propagation over a cohort against a dense loop over the steps, client by client."""

from __future__ import annotations

import numpy as np
import torch

from fedquilt.nn.label_propagation import distributions, propagation
from support.clients import assert_near, gcn_operator, hard_clients, lay, numbers, with_weights


def test_steps_equal_a_dense_loop() -> None:
    clients = with_weights(hard_clients())
    for layout in ("padded", "compact"):
        cohort = lay(clients, layout)
        first = numbers(1, cohort.rows, 3).softmax(1)
        found = list(propagation(cohort, first, 3, 0.3))
        assert len(found) == 3
        for m, client in enumerate(clients):
            a, start = gcn_operator(client), cohort.parts_of(first)[m].double().numpy()
            y = start
            for spread in found:
                y = 0.3 * start + 0.7 * a @ y
                assert_near(cohort.parts_of(spread)[m], torch.from_numpy(np.asarray(y)))


def test_distributions_sum_to_one_and_zeros_stay() -> None:
    rows = distributions(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    assert torch.equal(rows, torch.tensor([[0.25, 0.75], [0.0, 0.0]]))
