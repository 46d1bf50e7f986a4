"""Pairs chosen by score equal those of a dense matrix of all scores, client by client, and no such matrix is ever made."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.nn import latent_graph
from fedquilt.nn.edges import Links
from fedquilt.nn.latent_graph import Chosen, alike_nodes, bernoulli, top_k, top_k_alike
from support.clients import PADDING, Largest, assert_near, client_lists, equal_clients, lay, numbers, random_client

seeds = st.integers(0, 2**31)
CHUNKS = [1, 7, 60, 2**20]


def whole_numbers(seed: int, *shape: int) -> Tensor:
    """Small ones, whose products single precision holds exactly, many of them equal."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


def hard_clients() -> list[Client]:
    """One node; two; fewer nodes than most k; many more."""
    rng = np.random.default_rng(5)
    return [random_client(rng, m, n) for m, n in enumerate((1, 2, 6, 33, 17))]


def padding_of(cohort: Cohort) -> Tensor:
    return cohort.position >= torch.tensor(cohort.sizes)[cohort.client]


@contextmanager
def chunks_of(size: int, group: int = latent_graph.GROUP) -> Iterator[None]:
    with mock.patch.object(latent_graph, "CHUNK", size), mock.patch.object(latent_graph, "GROUP", group):
        yield


def neighbours(chosen: Chosen, real: bool = True) -> list[list[int]]:
    """The chosen v of every row u, or what fills its empty places."""
    out: list[list[int]] = [[] for _ in range(chosen.links.rows)]
    for u, v, there in zip(chosen.links.source.tolist(), chosen.links.target.tolist(), chosen.real, strict=True):
        if bool(there) == real:
            out[u].append(v)
    return out


def assert_top_k(cohort: Cohort, chosen: Chosen, scores: list[Tensor], k: int, exact: bool) -> None:
    """`scores` is a dense [n, n] matrix a client; of equal scores any may be chosen."""
    assert chosen.links.count == cohort.rows * k
    assert chosen.links.source.tolist() == [u for u in range(cohort.rows) for _ in range(k)]
    mine = neighbours(chosen)
    for first, nodes, dense in zip(cohort.start.tolist(), cohort.sizes, scores, strict=True):
        most = min(k, nodes)
        for u in range(nodes):
            found = [v - first for v in mine[first + u]]
            assert len(found) == len(set(found)) == most
            assert all(0 <= v < nodes for v in found)
            got, best = dense[u, found].sort().values, dense[u].topk(most).values.sort().values
            assert torch.equal(got, best) if exact else torch.allclose(got, best, atol=1e-5)
    fillers = neighbours(chosen, real=False)
    empty = padding_of(cohort)
    for row in range(cohort.rows):
        nodes = cohort.sizes[int(cohort.client[row])]
        places = k if empty[row] else max(0, k - nodes)
        assert fillers[row] == [row] * places
        assert not (empty[row] and mine[row])


def dense_products(cohort: Cohort, left: Tensor, right: Tensor) -> list[Tensor]:
    parts = zip(cohort.parts_of(left.double()), cohort.parts_of(right.double()), strict=True)
    return [torch.einsum("ud,vd->uv", mine, theirs) for mine, theirs in parts]


# -- the k best --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients(), seed=0, width=3, k=5, chunk=1, group=8)
@example(clients=hard_clients(), seed=0, width=3, k=1, chunk=100, group=8)
@example(clients=hard_clients(), seed=0, width=3, k=3, chunk=100, group=2)
@example(clients=hard_clients(), seed=0, width=3, k=50, chunk=100, group=8)
@given(
    clients=client_lists(),
    seed=seeds,
    width=st.integers(1, 6),
    k=st.integers(1, 20),
    chunk=st.sampled_from(CHUNKS),
    group=st.sampled_from([1, 2, 8]),
)
def test_top_k_equals_a_dense_one(
    rows: str, clients: list[Client], seed: int, width: int, k: int, chunk: int, group: int
) -> None:
    """Padding rows hold what would be chosen by everyone if it could be."""
    cohort = lay(clients, rows)
    for make, exact in ((whole_numbers, True), (numbers, False)):
        left, right = make(seed, cohort.rows, width), make(seed + 1, cohort.rows, width)
        left[padding_of(cohort)], right[padding_of(cohort)] = 1e6, 1e6
        with chunks_of(chunk, group):
            chosen = top_k(cohort, left, right, k)
        assert_top_k(cohort, chosen, dense_products(cohort, left, right), k, exact)


@example(seed=0, n=64, k=2, padded=0)  # groups of eight come out even
@example(seed=0, n=71, k=2, padded=0)
@example(seed=0, n=63, k=2, padded=0)  # too few groups
@example(seed=1, n=160, k=4, padded=158)  # fewer numbers than k
@given(seed=seeds, n=st.integers(1, 200), k=st.integers(1, 6), padded=st.integers(0, 200))
def test_the_largest_of_many_equal_a_sorted_row(seed: int, n: int, k: int, padded: int) -> None:
    """Many of them equal, and the last ones minus infinity, as those of padding rows are."""
    scores = whole_numbers(seed, 2, 3, n)
    scores[0, :, max(0, n - padded) :] = -torch.inf
    k = min(k, n)
    best, place = latent_graph.largest(scores.clone(), k)
    assert best.shape == place.shape == (2, 3, k)
    assert torch.equal(scores.gather(-1, place), best)
    assert torch.equal(best, scores.sort(-1, descending=True).values[..., :k])
    ranked = scores.argsort(dim=-1, descending=True, stable=True)[..., :k]
    for row, found, first in zip(best.flatten(0, 1), place.flatten(0, 1), ranked.flatten(0, 1), strict=True):
        assert len(set(found.tolist())) == k
        if bool((row > -torch.inf).all()):  # of equal ones the first
            assert set(found.tolist()) == set(first.tolist())


def same_choice(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> None:
    """The same places, in whatever order, but for those of minus infinity, which mean nothing."""
    for (best, place), (other, there) in zip(
        *(zip(*(t.flatten(0, -2) for t in pair), strict=True) for pair in (one, two)), strict=True
    ):
        assert torch.equal(best.sort().values, other.sort().values)
        assert set(place[best > -torch.inf].tolist()) == set(there[other > -torch.inf].tolist())
        assert len(set(place.tolist())) == len(place)


EDGES = [0.0, 1.0, -1.0, -math.inf, 1e-45, -1e-45, 1e-38, -1e-38, 3.4e38, -3.4e38, 1.0000001, -1.0000001, 0.5, -2.5]


@example(seed=0, n=200, k=6, kind="ties")
@example(seed=0, n=1, k=1, kind="normal")
@given(
    seed=seeds,
    n=st.integers(1, 200),
    k=st.integers(1, 6),
    kind=st.sampled_from(["ties", "normal", "edges", "negative"]),
)
def test_the_largest_by_whole_numbers_are_the_largest(seed: int, n: int, k: int, kind: str) -> None:
    """What an accelerator does instead: ties, negative numbers, minus infinity, numbers near zero and near the end."""
    stream = torch.Generator().manual_seed(seed)
    scores = {
        "ties": whole_numbers(seed, 2, 3, n),
        "normal": numbers(seed, 2, 3, n),
        "negative": -numbers(seed, 2, 3, n).abs() - 0.5,
        "edges": torch.tensor(EDGES)[torch.randint(len(EDGES), (2, 3, n), generator=stream)],
    }[kind]
    kept = scores.clone()
    found = latent_graph._largest_keys(scores, min(k, n))
    assert torch.equal(scores, kept)
    assert torch.equal(found[0], scores.gather(-1, found[1]))
    assert kind == "edges" or bool((found[0].diff(dim=-1) <= 0).all())  # minus infinities have no difference
    same_choice(found, latent_graph.largest(scores, min(k, n)) if k < n else ranked(scores, min(k, n)))


def ranked(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    place = scores.argsort(dim=-1, descending=True, stable=True)[..., :k]
    return scores.gather(-1, place), place


def test_rows_that_do_not_lie_in_one_piece_are_ranked_too() -> None:
    scores = whole_numbers(0, 2, 40, 3).transpose(1, 2)
    same_choice(latent_graph._largest_keys(scores, 5), latent_graph.largest(scores, 5))


@pytest.mark.parametrize("zeros", [[-0.0, 0.0, 0.0], [-1.0, -0.0, 0.0], [0.0, -0.0, 0.0]], ids=str)
def test_zeros_of_both_signs_are_equal(zeros: list[float]) -> None:
    scores = torch.tensor([zeros + [-3.0] * 5])
    for k in (1, 2):
        same_choice(latent_graph._largest_keys(scores, k), latent_graph.largest(scores, k))


@pytest.mark.parametrize("rows", PADDING)
def test_neighbours_are_the_same_whatever_the_chunk_and_the_cohort(rows: str) -> None:
    clients = hard_clients()
    cohort = lay(clients, rows)
    left, right = numbers(0, 2, cohort.rows, 4)
    found = []
    for size, group in itertools.product(CHUNKS, (1, 2, 8)):
        with chunks_of(size, group):
            found.append([set(vs) for vs in neighbours(top_k(cohort, left, right, 4))])
    assert all(one == found[0] for one in found)
    parts = zip(clients, cohort.start.tolist(), cohort.parts_of(left), cohort.parts_of(right), strict=True)
    for client, first, mine, theirs in parts:
        alone = neighbours(top_k(lay([client]), mine, theirs, 4))
        assert [{v + first for v in vs} for vs in alone] == found[0][first : first + client.graph.nodes]


@pytest.mark.parametrize("k", [2, 5])
def test_of_equal_scores_the_first_are_chosen_in_every_cohort(k: int) -> None:
    """Two nodes with the same neighbours have equal scores, but need not have equal features."""
    clients = [random_client(np.random.default_rng(0), m, n) for m, n in enumerate((60, 41, 75, 2))]
    for cohort in (lay(clients, "padded"), lay(clients, "compact")):
        z = cohort.rows_of([whole_numbers(m, n, 2) for m, n in enumerate(cohort.sizes)], 9.0)
        for size, group in ((2**20, 8), (2**20, 2), (70, 8)):
            with chunks_of(size, group):
                found = neighbours(top_k(cohort, z, z, k))
            for first, dense in zip(cohort.start.tolist(), dense_products(cohort, z, z), strict=True):
                expected = dense.argsort(dim=1, descending=True, stable=True)[:, :k]
                for u, best in enumerate(expected.tolist()):
                    assert {v - first for v in found[first + u]} == set(best)


@pytest.mark.parametrize("k", [1, 4, 30])
@pytest.mark.parametrize("rows", PADDING)
def test_groups_of_equal_nodes_are_searched_once(rows: str, k: int) -> None:
    """The same neighbours as node by node; of a client with fewer nodes than neighbours, too."""
    rng = np.random.default_rng(k)
    cohort = lay([random_client(rng, m, n) for m, n in enumerate((40, 25, 33))], rows)
    kind = torch.from_numpy(rng.integers(0, 12, cohort.rows))
    x, right = numbers(0, 12, 5)[kind], numbers(1, 12, 5)[kind]
    alike = alike_nodes(cohort, x)
    assert alike is not None
    assert [len(one.first) for one in alike] == [len(each.unique()) for each in cohort.parts_of(kind)]
    asked: list[tuple[int, int]] = []
    with mock.patch.object(latent_graph, "product", lambda a, b: asked.append((len(a[0]), len(b[0]))) or a @ b.mT):
        found = top_k_alike(cohort, x, right, k, alike)
    assert asked == [(len(one.first), len(one.first)) for one in alike]
    expected = top_k(cohort, x, right, k)
    assert [set(vs) for vs in neighbours(found)] == [set(vs) for vs in neighbours(expected)]
    assert_top_k(cohort, found, dense_products(cohort, x, right), k, exact=False)
    assert torch.equal(found.real, expected.real)
    assert alike_nodes(cohort, numbers(2, cohort.rows, 5)) is None  # no two are equal


def test_groups_begin_with_their_first_nodes() -> None:
    cohort = lay(equal_clients(1, 7))
    (alike,) = alike_nodes(cohort, torch.tensor([[3.0], [1.0], [3.0], [2.0], [1.0], [1.0], [2.0]])) or []
    assert alike.group.tolist() == [0, 1, 0, 2, 1, 1, 2]
    assert alike.first.tolist() == [0, 1, 3]
    assert alike.best(torch.tensor([[2, 1, 0], [1, 0, 2]]), 4).tolist() == [[3, 6, 1, 4], [1, 4, 5, 0]]


def test_left_chooses_and_right_is_chosen() -> None:
    cohort = lay(equal_clients(1, 3))
    left, right = torch.tensor([[1.0], [1.0], [-1.0]]), torch.tensor([[0.0], [5.0], [-5.0]])
    assert neighbours(top_k(cohort, left, right, 1)) == [[1], [1], [2]]


def test_a_score_of_ones_own() -> None:
    """The nearest instead of the most alike, in chunks."""
    cohort = lay(hard_clients(), "compact")
    place = numbers(0, cohort.rows, 2)
    with chunks_of(40):
        chosen = top_k(cohort, place, place, 3, lambda left, right: -torch.cdist(left, right))
    scores = [-torch.cdist(part.double(), part.double()) for part in cohort.parts_of(place)]
    assert_top_k(cohort, chosen, scores, 3, exact=False)
    assert all(row in vs for row, vs in enumerate(neighbours(chosen)))


@pytest.mark.parametrize("rows", PADDING)
def test_other_clients_do_not_matter(rows: str) -> None:
    cohort = lay(hard_clients(), rows)
    left, right = numbers(0, 2, cohort.rows, 4)
    before = neighbours(top_k(cohort, left, right, 4))
    changed = cohort.client == 3
    after = neighbours(
        top_k(cohort, left + changed.unsqueeze(1) * numbers(1, cohort.rows, 4), right * (1 + changed.unsqueeze(1)), 4)
    )
    same = [set(one) == set(two) for one, two in zip(before, after, strict=True)]
    assert all(same[row] for row in range(cohort.rows) if not changed[row])
    assert not all(same)


def test_choosing_is_not_differentiated() -> None:
    cohort = lay(hard_clients())
    z = numbers(0, cohort.rows, 4).requires_grad_()
    keys = client_keys(0, cohort)
    for chosen in (top_k(cohort, z, z, 4), bernoulli(cohort, z, z, 4, Draws(keys, 0))):
        assert not chosen.real.requires_grad


# -- memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("chunk", [1, 50, 700, 10**6])
def test_no_more_scores_than_a_chunk_are_asked_for(chunk: int, rows: str) -> None:
    """Or one row of each client, where a chunk is less than that; and no fewer than fit."""
    cohort = lay(hard_clients(), rows)
    z = numbers(0, cohort.rows, 4)
    asked = []

    def spy(left: Tensor, right: Tensor) -> Tensor:
        asked.append((left.shape[0], left.shape[1], right.shape[1]))
        assert right.shape[0] == left.shape[0]
        return left @ right.mT

    with chunks_of(chunk):
        top_k(cohort, z, z, 3, spy)
    for b, r, n in asked:
        assert b * r * n <= chunk or r == 1
    assert sum(b * r for b, r, _ in asked) == cohort.rows  # each row once
    longest = {n: max(r for _, r, m in asked if m == n) for _, _, n in asked}
    assert all(r == n or b * (r + 1) * n > chunk for b, _, n in asked for r in [longest[n]])


@pytest.mark.parametrize("rows", PADDING)
def test_no_matrix_of_all_pairs_is_made(rows: str) -> None:
    nodes, k = 300, 4
    cohort = lay(equal_clients(2, nodes), rows)
    left, right = numbers(0, 2, cohort.rows, 3)
    keys = client_keys(0, cohort)
    with chunks_of(10 * nodes):
        for choose in (
            lambda: top_k(cohort, left, right, k),
            lambda: bernoulli(cohort, left, right, k, Draws(keys, 0)),
        ):
            with Largest() as largest:
                choose()
            assert nodes < largest.numbers <= 10 * nodes  # a chunk; the pairs are 2 nodes k
    with Largest() as largest:  # otherwise the test would prove nothing
        top_k(cohort, left, right, k)
    assert largest.numbers >= nodes * nodes


# -- weights -----------------------------------------------------------------------------------------


def dense(chosen: Chosen, values: Tensor) -> Tensor:
    """[R, R], the values of pairs that are there; of a pair that is there more than once, their sum."""
    place = chosen.links.source.long(), chosen.links.target.long()
    out = torch.zeros(chosen.links.rows, chosen.links.rows, dtype=torch.float64)
    return out.index_put(place, values.double() * chosen.real, accumulate=True)


@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients(), seed=0, k=8, scale=1e4)
@settings(max_examples=15)
@given(clients=client_lists(), seed=seeds, k=st.integers(1, 12), scale=st.sampled_from([1e-2, 1.0, 30.0, 1e4]))
def test_weights_sum_to_one(rows: str, clients: list[Client], seed: int, k: int, scale: float) -> None:
    cohort = lay(clients, rows)
    z = numbers(seed, cohort.rows, 3)
    chosen = top_k(cohort, z, z, k)
    there = (~padding_of(cohort)).double()
    pattern = dense(chosen, torch.ones(chosen.links.count)) > 0
    # A pair that fills a place has the score of the row with itself, as a learner gives it.
    values = scale * numbers(seed + 1, cohort.rows, cohort.rows)[chosen.links.source.long(), chosen.links.target.long()]
    for weight, raised in (
        (chosen.softmax(values), dense(chosen, values).masked_fill(~pattern, -torch.inf).softmax(1).nan_to_num()),
        (chosen.normalised(values.abs()), dense(chosen, values.abs())),
    ):
        assert torch.isfinite(weight).all()
        assert bool((weight >= 0).all())
        assert not weight[chosen.real == 0].any()
        assert_near(dense(chosen, weight).sum(1), there)
        assert_near(dense(chosen, weight), raised / raised.sum(1, keepdim=True).clamp_min(1e-30), 1e-4)


def test_fillers_do_not_count_even_where_they_are_the_highest() -> None:
    links = Links(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 0, 1]), 3)
    chosen = Chosen(links, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert chosen.row_sum(torch.tensor([1.0, 2.0, 4.0, 8.0])).tolist() == [7, 7, 7, 8]
    assert_near(chosen.normalised(torch.tensor([1.0, 3.0, 9.0, 9.0])), torch.tensor([0.25, 0.75, 0.0, 0.0]))
    share = 1 / (1 + math.e)
    assert_near(chosen.softmax(torch.tensor([0.0, 1.0, 5.0, 9.0])), torch.tensor([share, 1 - share, 0.0, 0.0]))


def test_nothing_but_zeros_stays_zero_with_finite_gradients() -> None:
    links = Links(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), 2)
    chosen = Chosen(links, torch.ones(4))
    values = torch.tensor([0.0, 0.0, 0.5, 0.0], requires_grad=True)
    weight = chosen.normalised(values)
    assert weight.tolist() == [0, 0, 1, 0]
    (weight * numbers(0, 4)).sum().backward()
    assert torch.isfinite(values.grad).all()


def test_a_softmax_does_not_depend_on_a_shift_and_has_its_gradient() -> None:
    cohort = lay(hard_clients())
    z = numbers(0, cohort.rows, 3)
    chosen = top_k(cohort, z, z, 4)
    values, pull = numbers(1, chosen.links.count).requires_grad_(), numbers(2, chosen.links.count)
    weight = chosen.softmax(values)
    shift = numbers(3, cohort.rows)[chosen.links.source.long()]
    assert_near(chosen.softmax(values.detach() + shift), weight.detach())
    (weight * pull).sum().backward()
    w, g = weight.detach().double(), pull.double()
    mean = torch.zeros(cohort.rows, dtype=torch.float64).index_add(0, chosen.links.source.long(), w * g)
    assert_near(values.grad, w * (g - mean[chosen.links.source.long()]))


# -- drawn pairs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients(), seed=0, degree=5, chunk=40)
@settings(max_examples=15)
@given(clients=client_lists(), seed=seeds, degree=st.integers(1, 20), chunk=st.sampled_from(CHUNKS))
def test_only_positive_scores_of_the_same_client_are_drawn(
    rows: str, clients: list[Client], seed: int, degree: int, chunk: int
) -> None:
    cohort = lay(clients, rows)
    left, right = whole_numbers(seed, 2, cohort.rows, 2)
    left[padding_of(cohort)], right[padding_of(cohort)] = 1e6, 1e6
    with chunks_of(chunk):
        chosen = bernoulli(cohort, left, right, degree, Draws(client_keys(seed, cohort), 2))
    source, target = chosen.links.source.tolist(), chosen.links.target.tolist()
    pairs = list(zip(source, target, strict=True))
    assert source == sorted(source)
    assert len(pairs) == len(set(pairs))
    assert chosen.real.tolist() == [1.0] * len(pairs)
    empty = padding_of(cohort)
    for u, v in pairs:
        assert cohort.client[u] == cohort.client[v]
        assert not empty[[u, v]].any()
        assert float(left[u] @ right[v]) > 0


def test_chances_are_proportional_to_positive_scores() -> None:
    """All rows alike, so that each column's share over rows and steps is its chance."""
    nodes, degree, steps = 200, 12, 40
    cohort = lay(equal_clients(1, nodes))
    score = numbers(0, nodes)
    keys = client_keys(1, cohort)
    drawn = torch.zeros(nodes)
    for step in range(steps):
        with chunks_of(17 * nodes):
            chosen = bernoulli(cohort, torch.ones(nodes, 1), score.unsqueeze(1), degree, Draws(keys, step))
        drawn += torch.bincount(chosen.links.target, minlength=nodes)
    chance = degree * torch.relu(score) / torch.relu(score).sum()
    assert float(chance.max()) < 1
    assert not drawn[score <= 0].any()
    here, times = score > 0, nodes * steps
    z = ((drawn - times * chance) / (times * chance * (1 - chance)).sqrt())[here]
    assert float(z.abs().max()) < 5
    assert 0.7 < float(z.std()) < 1.3
    assert float(drawn.sum() / times) == pytest.approx(degree, abs=0.2)


def test_a_node_has_so_many_neighbours_on_average() -> None:
    nodes, degree = 150, 10
    cohort = lay(equal_clients(2, nodes))
    left, right = (numbers(i, cohort.rows, 6).abs() * 10.0**i for i in range(2))
    drawn = torch.zeros(cohort.rows)
    for step in range(60):
        chosen = bernoulli(cohort, left, right, degree, Draws(client_keys(1, cohort), step))
        drawn += torch.bincount(chosen.links.source, minlength=cohort.rows)
    mean = drawn / 60
    assert float(mean.mean()) == pytest.approx(degree, abs=0.15)  # five times its deviation
    assert float(mean.std()) < 2 * (degree / 60) ** 0.5  # no row is favoured


def test_a_chance_is_at_most_one() -> None:
    cohort = lay(equal_clients(1, 4))
    ones = torch.ones(4, 1)
    chosen = bernoulli(cohort, ones, ones, 4, Draws(client_keys(0, cohort), 0))
    assert neighbours(chosen) == [[0, 1, 2, 3]] * 4
    more = bernoulli(cohort, ones, ones, 9, Draws(client_keys(0, cohort), 0))
    assert neighbours(more) == [[0, 1, 2, 3]] * 4


def test_without_a_positive_score_nothing_is_drawn() -> None:
    cohort = lay(hard_clients())
    ones = torch.ones(cohort.rows, 1)
    for right in (-ones, 0 * ones):
        chosen = bernoulli(cohort, ones, right, 5, Draws(client_keys(0, cohort), 0))
        assert chosen.links.count == 0
        assert chosen.normalised(chosen.real).shape == (0,)
        assert not chosen.links.sum(chosen.normalised(chosen.real), ones).any()


@pytest.mark.parametrize("rows", PADDING)
def test_draws_belong_to_the_client(rows: str) -> None:
    clients = hard_clients()
    cohort = lay(clients, rows)
    left, right = numbers(0, 2, cohort.rows, 4)
    keys = client_keys(3, cohort)
    found = []
    for size in CHUNKS:
        with chunks_of(size):
            found.append(neighbours(bernoulli(cohort, left, right, 4, Draws(keys, 5))))
    assert all(one == found[0] for one in found)
    for m, (client, first) in enumerate(zip(clients, cohort.start.tolist(), strict=True)):
        one = lay([client])
        mine, theirs = cohort.parts_of(left)[m], cohort.parts_of(right)[m]
        alone = neighbours(bernoulli(one, mine, theirs, 4, Draws(client_keys(3, one), 5)))
        assert [[v + first for v in vs] for vs in alone] == found[0][first : first + client.graph.nodes]
    assert neighbours(bernoulli(cohort, left, right, 4, Draws(keys, 6))) != found[0]
    assert neighbours(bernoulli(cohort, left, right, 4, Draws(client_keys(4, cohort), 5))) != found[0]


def test_rows_and_clients_draw_differently() -> None:
    cohort = lay(equal_clients(2, 60))
    ones = torch.ones(120, 1)
    drawn = neighbours(bernoulli(cohort, ones, ones, 6, Draws(client_keys(0, cohort), 0)))
    assert len({tuple(v % 60 for v in vs) for vs in drawn}) == 120
