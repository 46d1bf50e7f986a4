"""Negatives of a training step: never an edge, any other pair, and each client's own whatever its cohort."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.graphs.node_pairs import number_pairs
from fedquilt.graphs.split import Shares
from fedquilt.tasks.link_pairs import FreePairs, NodePairs, pairs_of_cohort
from fedquilt.tasks.link_split import JOINED, EdgeSplit
from support.clients import random_client


def split_clients(seed: int, sizes: list[int], share: float = 0.3) -> list:
    rng = np.random.default_rng(seed)
    split = EdgeSplit(Shares(0.7, 0.1, 0.2), 0.5)
    return [split.client(m, random_client(rng, m, n, edges=share).graph, 0) for m, n in enumerate(sizes)]


def drawn_by(cohort: Cohort, step: int) -> NodePairs:
    pairs = pairs_of_cohort(cohort)
    return pairs.free.draw(pairs.edges["train"], Draws(client_keys(0, cohort), step))


@settings(max_examples=40)
@given(st.integers(0, 99), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.floats(0, 1), st.integers(0, 50))
def test_a_negative_is_never_an_edge_of_any_part(seed: int, sizes: list[int], share: float, step: int) -> None:
    cohort = Cohort(split_clients(seed, sizes, share))
    drawn = drawn_by(cohort, step)
    for m, client in enumerate(cohort.members):
        u, v = drawn.ends[:, drawn.client == m].numpy()
        if client.held_out[JOINED].size == client.graph.nodes * (client.graph.nodes - 1) // 2:
            assert (u == v).all()  # a complete graph has no negatives; the loss leaves these out
            assert pairs_of_cohort(cohort).free.some[m] == 0
            continue
        assert ((u >= 0) & (u < v) & (v < client.graph.nodes)).all()
        assert not np.isin(number_pairs(np.stack([u, v])), client.held_out[JOINED]).any()
        assert len(u) == client.held_out["train"].shape[1]  # as many as edges


def test_draws_are_new_in_each_step_and_a_clients_own() -> None:
    clients = split_clients(0, [12, 20, 9])
    whole = [drawn_by(Cohort(clients), step) for step in (0, 1)]
    assert not torch.equal(whole[0].ends, whole[1].ends)
    for m, client in enumerate(clients):
        assert torch.equal(drawn_by(Cohort([client]), 1).ends, whole[1].ends[:, whole[1].client == m])


def test_every_free_pair_has_the_same_chance() -> None:
    (client,) = split_clients(3, [7], 0.4)
    cohort = Cohort([client])
    free = 21 - client.held_out[JOINED].size
    like = NodePairs.of(cohort, [np.zeros((2, 20_000), np.int64)])
    drawn = FreePairs.of(cohort).draw(like, Draws(client_keys(0, cohort), 4))
    counts = np.bincount(number_pairs(drawn.ends.numpy()), minlength=21)
    assert (counts > 0).sum() == free
    expected = 20_000 / free
    assert np.abs(counts[counts > 0] - expected).max() < 5 * np.sqrt(expected)
