"""Link inference, against loops over pairs and an attacker who cannot be wrong."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.graph import Graph
from fedquilt.scenarios.link_inference import VIEWS, area, cosine, guess_links, infer_links, representation, told_right
from support.clients import dense_adjacency, random_client
from support.federations import make_method, make_task, ragged_clients


def joined(client: Client) -> np.ndarray:
    return dense_adjacency(client) > 0


def test_cosines_are_those_of_pairs() -> None:
    rng = np.random.default_rng(0)
    h = rng.standard_normal((9, 4))
    h[3] = 0.0
    pairs = np.array(list(combinations(range(9), 2))).T
    found = cosine(h, pairs)
    for (u, v), score in zip(pairs.T, found, strict=True):
        lengths = np.sqrt((h[u] ** 2).sum() * (h[v] ** 2).sum())
        assert score == pytest.approx((h[u] * h[v]).sum() / lengths if lengths else 0.0, abs=1e-8)


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(1)
    score, is_link = rng.integers(0, 5, 40).astype(float), rng.random(40) < 0.4
    expected = np.mean([(a > b) + 0.5 * (a == b) for a in score[is_link] for b in score[~is_link]])
    assert area(score, is_link) == pytest.approx(expected)
    assert area(score, is_link) == pytest.approx(roc_auc_score(is_link, score))


def test_the_half_with_the_higher_scores_is_called_links() -> None:
    is_link = np.array([True, True, False, False])
    assert told_right(np.array([4.0, 3.0, 2.0, 1.0]), is_link) == 1.0
    assert told_right(np.array([1.0, 2.0, 3.0, 4.0]), is_link) == 0.0
    assert told_right(np.array([4.0, 1.0, 3.0, 2.0]), is_link) == 0.5
    assert told_right(np.zeros(4), is_link) == 0.5  # equal scores tell nothing
    assert told_right(np.array([2.0, 1.0, 1.0, 0.0]), is_link) == pytest.approx(0.75)


def test_rows_of_the_adjacency_tell_all_and_noise_tells_nothing() -> None:
    rng = np.random.default_rng(2)
    blocks = np.kron(np.eye(10), np.ones((6, 6)))
    u, v = np.nonzero(np.triu(blocks, 1))
    graph = Graph.from_arrays("blocks", np.stack([u, v]), np.ones((60, 1)), np.zeros(60, dtype=np.int64))
    guess = guess_links(graph, blocks, 0)
    assert guess is not None
    assert guess.accuracy == guess.auc == 100.0
    noise = [guess_links(graph, rng.standard_normal((60, 8)), seed) for seed in range(20)]
    assert 45 < np.mean([one.accuracy for one in noise if one is not None]) < 55
    assert guess_links(graph, blocks, 0) == guess  # the same pairs for the same seed


def test_graphs_with_no_pair_of_one_kind_have_no_guess() -> None:
    empty = Graph.from_arrays("empty", np.zeros((2, 0), dtype=int), np.ones((5, 1)), np.zeros(5, dtype=np.int64))
    full = Graph.from_arrays("full", np.array([[0, 0, 1], [1, 2, 2]]), np.ones((3, 1)), np.zeros(3, dtype=np.int64))
    for graph in (empty, full):
        assert guess_links(graph, np.eye(graph.nodes), 0) is None


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "fedhero", "fedssa"])
def test_each_view_is_what_that_attacker_computes(name: str) -> None:
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients))
    cohort = Cohort(clients)
    personal = method.personal(method.start(cohort))
    guesses = infer_links(method, personal, clients, 4)
    assert tuple(guesses) == VIEWS
    with torch.no_grad():
        seen = representation(method, personal, cohort)
    if name == "fedavg":  # the second layer, and not the classifier
        assert [h.shape[1] for h in seen] == [personal["conv2.weight"].shape[2]] * len(clients)
        assert np.allclose(np.concatenate(seen), method.model(cohort, personal).embedding.numpy()[cohort.nodes])  # type: ignore[attr-defined]
    by_hand = [guess_links(client.graph, h, 4) for client, h in zip(clients, seen, strict=True)]
    known = [guess.accuracy for guess in by_hand if guess is not None]
    assert guesses["representations"].accuracy == pytest.approx(np.mean(known))
    own = [
        guess_links(c.graph, np.asarray(c.graph.x if isinstance(c.graph.x, np.ndarray) else c.graph.x.toarray()), 4)
        for c in clients
    ]
    assert guesses["features"].auc == pytest.approx(np.mean([guess.auc for guess in own if guess is not None]))


def test_without_edges_the_weights_do_not_see_them() -> None:
    """Two clients that differ in edges only have the same representations."""
    rng = np.random.default_rng(3)
    client = random_client(rng, 0, 20)
    method = make_method("fedavg", [client], make_task([client]))
    personal = method.personal(method.start(Cohort([client])))
    from dataclasses import replace

    bare = replace(client, graph=replace(client.graph, edges=np.zeros((2, 0), dtype=np.int64)))
    (without,) = representation(method, personal, Cohort([bare]))
    (seen,) = representation(method, personal, Cohort([client]))
    assert not np.allclose(without, seen)
    expected = guess_links(client.graph, without, 1)
    found = infer_links(method, personal, [client], 1)["weights"]
    assert expected is not None
    assert (found.accuracy, found.auc) == pytest.approx((expected.accuracy, expected.auc))
    assert joined(client).any()
