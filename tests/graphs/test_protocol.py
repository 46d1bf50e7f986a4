from __future__ import annotations

from fedquilt.graphs.protocol import Protocol


def test_the_defaults_are_those_for_a_graph_of_ones_own() -> None:
    """As docs/data.md promises them."""
    protocol = Protocol()
    assert protocol.metric == "accuracy"
    assert not protocol.largest_component
    assert not protocol.normalise_features
    assert protocol.split == (0.2, 0.4, 0.4)
    assert (protocol.rounds, protocol.epochs) == (100, 1)
