"""Malicious clients that send what they trained, on wrong labels: class c of a training node becomes C - 1 - c."""

from __future__ import annotations

from dataclasses import replace

from fedquilt.cohort.client import Client


def with_poisoned_labels(client: Client) -> Client:
    """The client with the classes of its training nodes turned round; validation and test labels stay true.

    With an odd number of classes the one in the middle stays.
    """
    y, nodes = client.graph.y.copy(), client.training_nodes
    y[nodes] = client.graph.classes - 1 - y[nodes]
    return replace(client, graph=replace(client.graph, y=y))
