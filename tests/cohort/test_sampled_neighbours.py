"""Training nodes with drawn neighbours: who is there, how many, with what chance; all of them are the whole neighbourhood."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.utils import k_hop_subgraph, to_undirected

from fedquilt.cohort.client import Client
from fedquilt.cohort.sampled_neighbours import (
    SampledNeighbours,
    most_nodes,
    parse_fan_out,
    possible_fan_out,
    sampled_neighbours_of,
)
from fedquilt.graphs.split import TRAIN
from support.federations import ragged_clients


def client_of(nodes: int = 60, weighted: bool = False) -> Client:
    """A client whose features tell its nodes apart."""
    client = ragged_clients((nodes,))[0]
    weights = np.arange(1, client.graph.edges.shape[1] + 1, dtype=np.float32) if weighted else None
    return replace(client, graph=replace(client.graph, edge_weights=weights))


def numbers(client: Client, part: Client) -> np.ndarray:
    place = {row.tobytes(): number for number, row in enumerate(np.asarray(client.graph.x))}
    return np.array([place[row.tobytes()] for row in np.asarray(part.graph.x)])


def pairs(client: Client, part: Client) -> set[tuple[int, int]]:
    """A part's edges by the numbers of their nodes in the client's graph."""
    return set(map(tuple, np.sort(numbers(client, part)[part.graph.edges], axis=0).T.tolist()))


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_an_epoch_goes_once_through_all_training_nodes() -> None:
    client = client_of()
    cut = SampledNeighbours(client, 7, (2, 2))
    parts = [make() for make in cut.dealt(3, 5)]
    assert len(parts) == cut.steps == -(-client.training_nodes.size // 7)
    trained = [numbers(client, part)[part.training_nodes] for part in parts]
    assert max(len(some) for some in trained) <= 7
    assert np.array_equal(np.sort(np.concatenate(trained)), client.training_nodes)
    for part in parts:
        assert part.graph.nodes <= most_nodes(7, (2, 2)) == 49
        assert np.array_equal(part.graph.y, client.graph.y[numbers(client, part)])
        others = part.split != TRAIN  # a training node that another step has is met, and teaches nothing here
        assert set(numbers(client, part)[~others]) <= set(client.training_nodes)


def test_what_is_dealt_depends_on_seed_client_and_epoch() -> None:
    client = client_of()

    def dealt(of: Client, seed: int, epoch: int) -> str:
        parts = [make() for make in SampledNeighbours(of, 7, (2, 2)).dealt(seed, epoch)]
        return str([sorted(pairs(of, part)) for part in parts])

    assert dealt(client, 0, 0) == dealt(client, 0, 0)
    found = [dealt(client, 0, 0), dealt(client, 0, 1), dealt(client, 1, 0), dealt(replace(client, id=1), 0, 0)]
    assert len(set(found)) == 4


def test_edges_are_the_clients_own_and_no_node_gives_more_than_it_may() -> None:
    client = client_of()
    own = set(map(tuple, client.graph.edges.T.tolist()))
    training = client.training_nodes[:4]
    for seed in range(20):
        part = SampledNeighbours(client, 4, (3, 1)).around(training, stream(seed))
        found = pairs(client, part)
        assert found <= own
        assert len(found) == part.graph.edges.shape[1]  # none twice
        assert (part.graph.edges[0] < part.graph.edges[1]).all()
        assert len(found) <= 4 * 3 + 4 * 3 * 1
        met = set(numbers(client, part))
        assert met == set(training) | {node for pair in found for node in pair}
        first = Counter(node for pair in found for node in pair if node in set(training))
        degree = Counter(client.graph.edges.ravel().tolist())
        assert all(first[node] >= min(3, degree[node]) for node in training)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_all_neighbours_are_those_of_pytorch_geometric(hops: int) -> None:
    """With a fan-out above every degree nothing is left to chance: the edges of all nodes within hops - 1 steps."""
    client = client_of()
    training = client.training_nodes[:2]
    part = SampledNeighbours(client, 2, (100,) * hops).around(training, stream())
    edges = to_undirected(torch.from_numpy(client.graph.edges))
    near, _, _, _ = k_hop_subgraph(torch.from_numpy(training), hops, edges, num_nodes=60)
    inner, _, _, _ = k_hop_subgraph(torch.from_numpy(training), hops - 1, edges, num_nodes=60)
    assert np.array_equal(numbers(client, part), near.numpy())
    touching = np.isin(client.graph.edges, inner.numpy()).any(0)
    assert pairs(client, part) == set(map(tuple, client.graph.edges[:, touching].T.tolist()))


def test_each_neighbour_has_the_same_chance() -> None:
    client = client_of()
    degree = np.bincount(client.graph.edges.ravel(), minlength=60)
    node = client.training_nodes[np.argmax(degree[client.training_nodes])]
    cut, drawn = SampledNeighbours(client, 1, (2,)), Counter()
    for seed in range(2000):
        found = pairs(client, cut.around(np.array([node]), stream(seed)))
        assert len(found) == 2
        drawn.update(found)
    assert degree[node] > 3
    assert len(drawn) == degree[node]
    expected = 2000 * 2 / degree[node]
    assert all(abs(count - expected) < 5 * np.sqrt(expected) for count in drawn.values())


def test_edges_keep_their_weights() -> None:
    client = client_of(weighted=True)
    part = SampledNeighbours(client, 3, (2, 2)).around(client.training_nodes[:3], stream())
    weight = dict(zip(map(tuple, client.graph.edges.T.tolist()), client.graph.edge_weights, strict=True))
    place = numbers(client, part)
    for (u, v), own in zip(part.graph.edges.T, part.graph.edge_weights, strict=True):
        assert own == weight[tuple(sorted((place[u], place[v])))]
    assert part.mean_weight == client.mean_weight


def test_a_client_that_fits_into_a_step_is_whole() -> None:
    client = client_of(9)
    cut = SampledNeighbours(client, 9, (1,))
    assert cut.steps == 1
    assert cut.dealt(0, 0)[0]() is client
    assert sampled_neighbours_of(client, 9, (1,)) is sampled_neighbours_of(client, 9, (1,))
    assert sampled_neighbours_of(client, 9, (2,)) is not sampled_neighbours_of(client, 9, (1,))


def test_a_fan_out_is_read_from_a_text() -> None:
    assert parse_fan_out("10,5") == (10, 5)
    assert parse_fan_out("") == ()
    for bad in ("10,", "a", "0", "-3", "1.5", "1000001", ",".join("1" * 17)):
        with pytest.raises(ValueError, match="such as 10,5"):
            parse_fan_out(bad)


def test_what_a_fan_out_from_outside_may_be() -> None:
    assert possible_fan_out((10, 5))
    assert possible_fan_out(())
    for bad in ((0,), (-1,), (1.5,), (True,), ("10",), (10**9,), (1,) * 17):
        assert not possible_fan_out(bad)
