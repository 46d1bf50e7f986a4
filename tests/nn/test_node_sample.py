"""A client's sample of nodes is its own in every cohort."""

from __future__ import annotations

import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.node_sample import other_rows, sample_nodes
from support.federations import ragged_clients

CLIENTS = ragged_clients((25, 6, 31, 9))


def test_each_client_has_as_many_different_nodes_as_were_asked_for_or_all_it_has() -> None:
    cohort = Cohort(CLIENTS)
    sample = sample_nodes(cohort, 3, 8, 1)
    assert sample.count.tolist() == [8, 6, 8, 8]
    for m, client in enumerate(CLIENTS):
        rows = sample.index[m][sample.real[m]]
        assert len(set(rows.tolist())) == len(rows)
        assert set(cohort.client[rows].tolist()) == {m}
        assert int(cohort.position[rows].max()) < client.graph.nodes
    assert sample.client.tolist() == cohort.client[sample.index.flatten()].tolist()


def test_it_is_the_same_in_any_cohort_and_another_with_another_seed() -> None:
    together = sample_nodes(Cohort(CLIENTS), 3, 8, 1)
    positions = together.position.view(together.index.shape)
    for m, client in enumerate(CLIENTS):
        alone = sample_nodes(Cohort([client]), 3, 8, 1)
        assert torch.equal(alone.position, positions[m])
        assert torch.equal(alone.real[0], together.real[m])
    for seed, layer in ((4, 1), (3, 2)):
        assert not torch.equal(sample_nodes(Cohort(CLIENTS), seed, 8, layer).index, together.index)


def test_rows_of_padding_are_zero() -> None:
    cohort = Cohort(CLIENTS)
    sample = sample_nodes(cohort, 3, 8, 1)
    values = torch.arange(cohort.rows).float().unsqueeze(1) + 1.0
    taken = sample.of(values)
    assert torch.equal(taken[~sample.real], torch.zeros(2, 1))
    assert torch.equal(taken[sample.real], values[sample.index[sample.real]])


def test_other_rows_are_other_nodes_of_the_client() -> None:
    cohort = Cohort(CLIENTS)
    rows, other = torch.from_numpy(cohort.taken), other_rows(cohort)
    assert torch.equal(cohort.client[other], cohort.client)
    assert not (other[rows] == rows).any()
    assert sorted(other[rows].tolist()) == rows.tolist()
