"""Evidence against loops; what the server makes of it is in test_quilt.py."""

from __future__ import annotations

from unittest import mock

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base_evidence import features_seen, features_seen_by, of_each
from fedquilt.nn import filters
from fedquilt.tasks.node_classification import training_class_counts
from support.clients import client_lists, dense_adjacency, dense_features, with_training_nodes


@given(clients=client_lists(most=2))
def test_features_seen_equals_a_loop(clients: list[Client]) -> None:
    for client in clients:
        x, a = dense_features(client), dense_adjacency(client)
        expected = np.zeros(x.shape[1])
        for node in range(len(x)):
            if client.split[node] == 0 and client.graph.y[node] >= 0:
                for f in range(x.shape[1]):
                    near = [other for other in range(len(x)) if other == node or a[node, other]]
                    expected[f] += any(x[other, f] != 0 for other in near)
        assert features_seen(client).tolist() == expected.tolist()


@given(clients=client_lists(most=2))
def test_classes_seen_equals_a_loop(clients: list[Client]) -> None:
    for client in clients:
        expected = [0] * client.graph.classes
        for label, part in zip(client.graph.y, client.split, strict=True):
            if part == 0 and label >= 0:
                expected[label] += 1
        assert training_class_counts(client).tolist() == expected


def test_evidence_of_a_cohort_is_that_of_its_clients() -> None:
    clients = with_training_nodes((3, 0, 7))
    for count in (features_seen, training_class_counts):
        found = of_each(Cohort(clients), count)
        assert found.dtype == torch.float32
        assert found.tolist() == [count(client).tolist() for client in clients]
        assert not found[1].any()


@given(clients=client_lists(most=6), most=st.integers(1, 60))
def test_a_client_has_seen_the_same_features_in_any_company(clients: list[Client], most: int) -> None:
    alone = [features_seen(client).tolist() for client in clients]
    assert features_seen_by(clients).tolist() == alone
    with mock.patch.object(filters, "BUNCH", most):
        assert filters.of_each_once(Cohort(clients), "seen", features_seen_by).tolist() == alone


def test_features_that_cancel_are_seen_all_the_same() -> None:
    graph = Graph("pair", np.array([[0], [1]]), np.array([[1.0], [-1.0]], dtype=np.float32), np.array([0, 1]), 2)
    assert features_seen(Client(0, graph, np.zeros(2, dtype=np.int8))).tolist() == [2]
