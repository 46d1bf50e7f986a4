"""Each client's nodes are split alone: as a site splits its own, or by the run's split for each seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.client_split import OWN, client_splits, own_split
from fedquilt.graphs.federated import FederatedGraph, federated
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TEST, TRAIN, VAL, parse_split
from support.small_runs import own_graph


def clients() -> tuple[Graph, Graph, FederatedGraph]:
    masks = {part: np.arange(30) % 3 == code for code, part in enumerate(("train", "val", "test"))}
    drawn, given = own_graph(40), replace(own_graph(30), masks=masks)
    return drawn, given, federated("both", (drawn, given), ["a", "b"])


def test_own_splits_are_those_of_sites_whatever_the_seed() -> None:
    drawn, _, both = clients()
    found = client_splits(OWN).draw(both, seed=3)
    assert found[:40].tolist() == own_split(drawn).tolist() == parse_split("20/40/40").draw(drawn, 0).tolist()
    assert found[40:].tolist() == [(TRAIN, VAL, TEST)[number % 3] for number in range(30)]
    assert found.tolist() == client_splits(OWN).draw(both, seed=4, attempt=1).tolist()


def test_a_split_of_the_run_is_drawn_for_each_client_and_seed() -> None:
    drawn, given, both = clients()
    split = client_splits("50/25/25")
    found = split.draw(both, seed=0)
    assert found[:40].tolist() == parse_split("50/25/25").draw(drawn, 0).tolist()
    assert found[40:].tolist() == parse_split("50/25/25").draw(given, 0).tolist()
    assert found.tolist() != split.draw(both, seed=1).tolist()


def test_a_client_that_cannot_be_split_is_named() -> None:
    _, _, both = clients()
    unlabelled = replace(both, y=np.where(both.owner == 1, -1, both.y), masks=None)
    with pytest.raises(FedquiltError, match="Client 'b' has 0 labelled nodes, too few to split 20/40/40"):
        client_splits(OWN).draw(unlabelled, 0)
    with pytest.raises(FedquiltError, match="Client 'a' has no given split"):
        client_splits("given").draw(both, 0)
