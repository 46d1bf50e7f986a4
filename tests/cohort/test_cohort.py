"""Many clients as one computation: rows, operators, features and sums over clients, against loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.tasks.node_classification import labels
from support.clients import (
    LAYOUTS,
    PADDING,
    assert_near,
    client_lists,
    dense_features,
    equal_clients,
    gcn_operator,
    lay,
    mean_operator,
    random_client,
)

seeds = st.integers(0, 2**31)


def own_rows(cohort: Cohort, m: int) -> np.ndarray:
    return cohort.start[m] + np.arange(cohort.sizes[m])


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists())
def test_rows_know_whose_they_are(rows: str, clients: list[Client]) -> None:
    cohort = lay(clients, rows)
    assert cohort.clients == len(clients)
    assert cohort.ids.tolist() == [client.id for client in clients]
    assert cohort.sizes == [client.graph.nodes for client in clients]
    assert len(cohort.client) == len(cohort.position) == len(labels(cohort)) == cohort.rows
    for m, client in enumerate(clients):
        mine = own_rows(cohort, m)
        assert (cohort.client[mine] == m).all()
        assert cohort.position[mine].tolist() == list(range(client.graph.nodes))
        assert np.array_equal(labels(cohort)[mine].numpy(), client.graph.y)
    for index, part in ((cohort.train, TRAIN), (cohort.val, VAL), (cohort.test, TEST)):
        expected = [
            int(row)
            for m, client in enumerate(clients)
            for row, y, s in zip(own_rows(cohort, m), client.graph.y, client.split, strict=True)
            if y >= 0 and s == part
        ]
        assert index.tolist() == expected


@given(clients=client_lists(), data=st.data())
def test_take_is_the_cohort_of_the_chosen(clients: list[Client], data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, len(clients) - 1), min_size=1)))
    cohort = Cohort(clients)
    some = cohort.take(chosen)
    assert some.members == [clients[m] for m in chosen]
    assert some.ids.tolist() == [clients[m].id for m in chosen]
    weight = torch.randn(len(clients), cohort.features, 3)
    whole, part = cohort.parts_of(cohort.smoothed @ weight), some.parts_of(some.smoothed @ weight[chosen])
    for place, m in enumerate(chosen):
        assert_near(part[place], whole[m])


def test_a_cohort_needs_a_client() -> None:
    with pytest.raises(ValueError, match="at least one client"):
        Cohort([])


# -- operators -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists())
def test_operators_are_block_diagonal(rows: str, clients: list[Client]) -> None:
    cohort = lay(clients, rows)
    for operator, reference in ((cohort.gcn, gcn_operator), (cohort.mean, mean_operator)):
        expected = torch.zeros(cohort.rows, cohort.rows, dtype=torch.float64)
        for m, client in enumerate(clients):
            mine = own_rows(cohort, m)
            expected[np.ix_(mine, mine)] = torch.from_numpy(reference(client))
        assert_near(operator.forward.to_dense(), expected, 1e-6)
        assert_near(operator.backward.to_dense(), expected.T, 1e-6)


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists())
def test_edges_are_both_directions_and_loops_sorted_by_target(rows: str, clients: list[Client]) -> None:
    cohort = lay(clients, rows)
    source, target = cohort.edges.tolist()
    assert target == sorted(target)
    expected = set()
    for m, client in enumerate(clients):
        first = int(cohort.start[m])
        expected |= {(first + i, first + i) for i in range(client.graph.nodes)}
        for u, v in client.graph.edges.T.tolist():
            expected |= {(first + u, first + v), (first + v, first + u)}
    assert len(source) == len(expected)
    assert set(zip(source, target, strict=True)) == expected


def laid_by_a_loop(cohort: Cohort, blocks: list[sp.csr_matrix]) -> sp.csr_matrix:
    """Square blocks in their clients' rows and columns, one after the other."""
    whole = sp.lil_matrix((cohort.rows, cohort.rows), dtype=np.float32)
    for m, block in enumerate(blocks):
        mine = own_rows(cohort, m)
        whole[np.ix_(mine, mine)] = block.toarray()
    return whole.tocsr()


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@settings(max_examples=15)
@given(clients=client_lists())
def test_all_clients_at_once_are_each_client_alone_bit_for_bit(rows: str, features: str, clients: list[Client]) -> None:
    cohort = lay(clients, rows, features)
    for name, smooth in (("gcn", cohort.smoothed), ("mean", cohort.mean_x)):
        blocks = [getattr(client, name) for client in clients]
        expected = laid_by_a_loop(cohort, blocks).toarray()
        assert np.array_equal(getattr(cohort, name).forward.to_dense().numpy(), expected)
        assert np.array_equal(getattr(cohort, name).backward.to_dense().numpy(), expected.T)
        training = cohort.training.chosen(cohort.diagonal(blocks, cohort.start.tolist(), cohort.rows))
        assert torch.equal(training.forward.to_dense(), getattr(cohort.training, name).forward.to_dense())
        if smooth.operator is not None:
            assert smooth.operator is getattr(cohort, name)
            continue
        products = [block @ dense_features(client) for block, client in zip(blocks, clients, strict=True)]
        if smooth.dense is not None:
            found = cohort.parts_of(smooth.dense)
        else:
            assert smooth.sparse is not None
            wide = cohort.parts_of(smooth.sparse.forward.to_dense().view(cohort.rows, len(clients), -1))
            found = [part[:, m] for m, part in enumerate(wide)]
        for one, two in zip(found, products, strict=True):
            assert np.array_equal(one.numpy(), two)


# -- training nodes as rows ------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists())
def test_training_rows_are_the_training_nodes(rows: str, clients: list[Client]) -> None:
    cohort = lay(clients, rows)
    training = cohort.training
    assert training is cohort.training
    assert torch.equal(training.index[training.real], cohort.train)
    assert torch.equal(training.client[training.real], cohort.client[cohort.train])
    assert torch.equal(training.position[training.real], cohort.position[cohort.train])
    assert torch.tensor(training.sizes).float().tolist() == cohort.train_count.tolist()
    # Padding stands for some node of the same client, so that nothing of another client is looked at.
    assert torch.equal(cohort.client[training.index], training.client)
    assert bool((training.position < torch.tensor(cohort.sizes)[training.client]).all())


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists())
def test_training_operators_are_rows_of_the_cohorts(rows: str, clients: list[Client]) -> None:
    cohort = lay(clients, rows)
    training = cohort.training
    for mine, whole in ((training.gcn, cohort.gcn), (training.mean, cohort.mean)):
        assert mine.shape == (training.rows, cohort.rows)
        expected = torch.zeros(training.rows, cohort.rows)
        expected[training.real] = whole.forward.to_dense()[cohort.train]
        assert torch.equal(mine.forward.to_dense(), expected)
        assert torch.equal(mine.backward.to_dense(), expected.T)


# -- sums over clients -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(), seed=seeds)
def test_counts_and_means(rows: str, clients: list[Client], seed: int) -> None:
    cohort = lay(clients, rows)
    stream = torch.Generator().manual_seed(seed)
    for index in (cohort.train, cohort.val, cohort.test):
        values = torch.randn(len(index), generator=stream)
        counts, means = cohort.counts(index), cohort.mean_over(values, index)
        assert counts.dtype == torch.float32
        for m in range(len(clients)):
            mine = [float(v) for v, row in zip(values, index.tolist(), strict=True) if int(cohort.client[row]) == m]
            assert float(counts[m]) == len(mine)
            expected = np.mean(mine) if mine else np.nan
            assert float(means[m]) == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)
    assert torch.equal(cohort.train_count, cohort.counts(cohort.train))
    assert torch.equal(cohort.train_weight, 1.0 / cohort.train_count[cohort.client[cohort.train]])


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(), seed=seeds)
def test_sums_over_any_rows(rows: str, clients: list[Client], seed: int) -> None:
    """Those that are known by name, and others."""
    cohort = lay(clients, rows)
    stream = torch.Generator().manual_seed(seed)
    some = torch.nonzero(torch.rand(cohort.rows, generator=stream) < 0.5).ravel()
    for index in (cohort.train, cohort.val, cohort.test, cohort.nodes, some, some[:0], cohort.train.clone()):
        values = torch.randint(-50, 50, (len(index),), generator=stream)
        owner = cohort.client[index].numpy()
        count = np.bincount(owner, minlength=len(clients))
        total = np.bincount(owner, weights=values.numpy(), minlength=len(clients))
        assert cohort.counts(index).tolist() == count.tolist()
        for each in (values.float(), values.double(), values):
            summed = cohort.sum_over(each, index)
            assert summed.dtype == torch.float32
            assert summed.tolist() == total.tolist()
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = torch.from_numpy(total / count)
        assert torch.allclose(cohort.mean_over(values.float(), index).double(), mean, rtol=1e-6, equal_nan=True)
    assert cohort.counts(cohort.nodes).tolist() == cohort.sizes
    assert cohort.node_count.tolist() == cohort.sizes


def test_rows_known_by_name_are_counted_once() -> None:
    """By the tensor itself: an equal one is counted anew, and another of the same length is not taken for it."""
    cohort = lay([random_client(np.random.default_rng(m), m, 12) for m in range(3)])
    for index in (cohort.train, cohort.val, cohort.test, cohort.nodes):
        assert cohort.counts(index) is cohort.counts(index)
        assert cohort.counts(index.clone()) is not cohort.counts(index)
        first = torch.zeros_like(index)
        assert cohort.counts(first).tolist() == [len(index), 0, 0]
    assert len({cohort.counts(part).data_ptr() for part in (cohort.train, cohort.val, cohort.test)}) == 3


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(), seed=seeds)
def test_node_mean_leaves_padding_out(rows: str, clients: list[Client], seed: int) -> None:
    cohort = lay(clients, rows)
    stream = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, 3, generator=stream) for n in cohort.sizes]
    found = cohort.node_mean(cohort.rows_of(parts, torch.inf))
    assert_near(found, torch.stack([part.double().mean(0) for part in parts]))


def test_a_cohort_of_one_row() -> None:
    for rows in PADDING:
        cohort = lay(equal_clients(1, 1), rows)
        assert cohort.rows == 1
        assert cohort.edges.tolist() == [[0], [0]]
        assert torch.equal(cohort.gcn @ torch.ones(1, 2), torch.ones(1, 2))
        assert torch.equal(cohort.mean @ torch.ones(1, 2), torch.zeros(1, 2))
