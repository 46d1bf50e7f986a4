"""Clients that train on turned labels."""

from __future__ import annotations

import numpy as np

from fedquilt.graphs.split import TRAIN
from fedquilt.scenarios.poisoned_labels import with_poisoned_labels
from support.federations import CLASSES, ragged_clients


def test_training_labels_are_turned_and_others_stay() -> None:
    client = ragged_clients()[0]
    poisoned = with_poisoned_labels(client)
    trains = client.split == TRAIN
    np.testing.assert_array_equal(poisoned.graph.y[trains], CLASSES - 1 - client.graph.y[trains])
    np.testing.assert_array_equal(poisoned.graph.y[~trains], client.graph.y[~trains])
    np.testing.assert_array_equal(with_poisoned_labels(poisoned).graph.y, client.graph.y)
    assert poisoned.id == client.id
