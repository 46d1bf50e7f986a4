"""Random numbers that belong to the client: the same in every cohort, and with the distribution they claim."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, advanced, client_keys
from fedquilt.cohort.rows import Rows
from support.clients import client_lists, equal_clients, lay

NODES, WIDTH = 1000, 32
# Numbers are a fixed function of the seed, so these bounds hold for ever once they hold.
SIGMAS, P = 5.0, 1e-5
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows() -> Cohort:
    return lay(equal_clients(4, NODES))


def draws(cohort: Cohort, step: int = 0, seed: int = 0) -> Draws:
    return Draws(client_keys(seed, cohort), step)


def normal(cohort: Cohort, step: int = 0, layer: int = 0, width: int = WIDTH, seed: int = 0) -> Tensor:
    return draws(cohort, step, seed).normal(cohort, width, layer)


def largest_correlation(columns: np.ndarray) -> float:
    """Between any two columns of [n, k], in standard deviations of what independent numbers would give."""
    matrix = np.corrcoef(columns, rowvar=False)
    return float(np.abs(matrix - np.eye(len(matrix))).max()) * math.sqrt(len(columns))


# -- a client's own --------------------------------------------------------------------------------


@given(
    clients=client_lists(),
    seed=st.integers(0, 2**62),
    step=st.integers(0, 10**7),
    layer=st.integers(0, 63),
    width=st.integers(1, 9),
)
def test_numbers_are_the_same_in_any_cohort(
    clients: list[Client], seed: int, step: int, layer: int, width: int
) -> None:
    def numbers(cohort: Cohort) -> list[list[Tensor]]:
        mine = draws(cohort, step, seed)
        found = (
            mine.words(cohort, width, layer),
            mine.normal(cohort, width, layer),
            mine.below(cohort, torch.tensor(cohort.sizes), width, layer),
        )
        return [cohort.parts_of(each) for each in found]

    for layout in ("padded", "compact"):
        together = numbers(lay(clients, layout))
        for m, client in enumerate(clients):
            for mine, alone in zip(together, numbers(lay([client])), strict=True):
                assert alone[0].shape == (client.graph.nodes, width)
                assert torch.equal(mine[m], alone[0])


def test_words_depend_on_client_and_place_only() -> None:
    """Other rows with the same (client, place) get the same numbers, in whatever order and beside whomever."""
    keys = torch.tensor([5, 6, 7])
    wide = Rows([9, 9, 9], CPU)
    few = Rows([4, 9], CPU, padding=0.0)
    assert wide.length is not None
    assert few.length is None
    whole = wide.parts_of(Draws(keys, 3).words(wide, 5, 2))
    some = few.parts_of(Draws(keys[[2, 0]], 3).words(few, 5, 2))
    assert torch.equal(some[0], whole[2][:4])
    assert torch.equal(some[1], whole[0])


def test_training_nodes_draw_what_they_draw_among_all_nodes() -> None:
    cohort = lay(equal_clients(3, 12))
    rows = cohort.training
    assert torch.equal(normal(cohort)[rows.index], draws(cohort).normal(rows, WIDTH, 0))


def test_another_step_layer_client_or_seed_gives_other_numbers(rows: Cohort) -> None:
    def words(step: int = 0, layer: int = 0, seed: int = 0) -> Tensor:
        return draws(rows, step, seed).words(rows, 8, layer)

    streams = [words(*place).view(4, NODES, 8) for place in itertools.product((0, 1, 64), (0, 1, 63), (0, 1))]
    flat = torch.stack(streams).flatten(0, 1)  # and every client of every one of them
    for one, two in itertools.combinations(flat, 2):
        # Among 8,000 pairs of 32-bit words a coincidence has probability 2e-6; in all 2,556 pairs of streams half a percent.
        assert int((one == two).sum()) <= 1
    assert torch.equal(words(), words())


def test_words_fill_all_32_bits(rows: Cohort) -> None:
    words = draws(rows).words(rows, WIDTH, 0)
    assert words.dtype == torch.int32
    ones = torch.stack([(words >> bit) & 1 for bit in range(32)]).double().mean((1, 2))
    assert float((ones - 0.5).abs().max()) < SIGMAS * 0.5 / math.sqrt(words.numel())


def test_numbers_are_pinned() -> None:
    """What a seed gives must not change from one version to the next: a resumed run would go another way."""
    cohort = lay(equal_clients(2, 2))
    own = draws(cohort, 3, seed=11)
    words = [[-723330420, 452313327], [1962374022, 1488578601], [1173952974, 1416732331], [1354768664, 1013314856]]
    assert own.words(cohort, 2, 1).tolist() == words
    numbers = [[-1.172257, -0.912987], [0.169285, -0.243831], [0.344861, -0.628621], [-0.056397, -0.636313]]
    assert torch.allclose(own.normal(cohort, 2, 1), torch.tensor(numbers), atol=1e-5)


# -- keys that move on -------------------------------------------------------------------------------


@example(seed=0, clocks=[0, 2**62, 2**63 - 1], step=2**40, layer=63)
@example(seed=1, clocks=[10**18, 1, 63], step=0, layer=0)
@given(
    seed=st.integers(0, 2**62),
    clocks=st.lists(st.integers(0, 2**40), min_size=1, max_size=4),
    step=st.integers(0, 1000),
    layer=st.integers(0, 63),
)
def test_advanced_keys_draw_what_a_later_step_draws(seed: int, clocks: list[int], step: int, layer: int) -> None:
    """Each client by its own clock, however far."""
    cohort = lay(equal_clients(len(clocks), 3))
    keys, clock = client_keys(seed, cohort), torch.tensor(clocks)
    moved = advanced(keys, clock)
    assert moved.dtype == torch.int64
    assert torch.equal(clock, torch.tensor(clocks))
    found = cohort.parts_of(Draws(moved, step).words(cohort, 4, layer))
    for m, late in enumerate(clocks):
        expected = cohort.parts_of(Draws(keys, late + step).words(cohort, 4, layer))[m]
        assert torch.equal(found[m], expected)


@given(seed=st.integers(0, 2**62), one=st.integers(0, 2**62), two=st.integers(0, 2**62))
def test_advancing_twice_is_advancing_by_the_sum(seed: int, one: int, two: int) -> None:
    keys = client_keys(seed, lay(equal_clients(2, 1)))
    clocks = [torch.full((2,), clock) for clock in (one, two)]
    assert torch.equal(advanced(advanced(keys, clocks[0]), clocks[1]), advanced(keys, clocks[0] + clocks[1]))
    assert torch.equal(advanced(keys, torch.zeros(2, dtype=torch.int64)), keys)


# -- normal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [(0, 0), (1, 0), (0, 1), (10**6, 63)])
def test_normal_is_standard_normal(rows: Cohort, place: tuple[int, int]) -> None:
    x = normal(rows, *place)
    assert x.dtype == torch.float32
    assert x.shape == (rows.rows, WIDTH)
    assert torch.isfinite(x).all()
    x = x.double().numpy()
    assert abs(x.mean()) < SIGMAS / math.sqrt(x.size)
    assert abs(x.var() - 1) < SIGMAS * math.sqrt(2 / x.size)
    assert abs((x**3).mean()) < SIGMAS * math.sqrt(15 / x.size)
    assert abs((x**4).mean() - 3) < SIGMAS * math.sqrt(96 / x.size)
    assert stats.kstest(x.ravel(), "norm").pvalue > P
    # Each client's numbers, the half made of cosines and the half made of sines.
    for part in [*np.split(x, 4), x[:, : WIDTH // 2], x[:, WIDTH // 2 :]]:
        assert stats.kstest(part.ravel(), "norm").pvalue > P
    assert np.abs(x.mean(0)).max() < SIGMAS / math.sqrt(len(x))  # each column
    assert np.abs(x.var(0) - 1).max() < SIGMAS * math.sqrt(2 / len(x))


def test_normal_has_tails(rows: Cohort) -> None:
    x = torch.cat([normal(rows, step) for step in range(8)]).double().numpy().ravel()
    for bound in (2.0, 3.0, 4.0):
        expected = stats.norm.sf(bound) * x.size
        for count in ((x > bound).sum(), (x < -bound).sum()):
            assert abs(count - expected) < SIGMAS * math.sqrt(expected)


def test_columns_are_uncorrelated(rows: Cohort) -> None:
    x = normal(rows).double().numpy()
    assert largest_correlation(x) < SIGMAS
    # A cosine and its sine share a radius: their squares must be uncorrelated too.
    assert largest_correlation(x**2) < SIGMAS


def test_steps_layers_clients_and_rows_are_uncorrelated(rows: Cohort) -> None:
    places = itertools.product((0, 1, 2, 64), (0, 1, 63), (0, 1))
    streams = [normal(rows, step, layer, 6, seed).ravel() for step, layer, seed in places]
    assert largest_correlation(torch.stack(streams, dim=1).double().numpy()) < SIGMAS
    clients = normal(rows).view(4, -1).T.double().numpy()
    assert largest_correlation(clients) < SIGMAS
    x = normal(rows).double().numpy()
    for apart in (1, 2, 3, 16):
        assert largest_correlation(np.stack([x[:-apart].ravel(), x[apart:].ravel()], axis=1)) < SIGMAS


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_any_width(rows: Cohort, width: int) -> None:
    x = normal(rows, width=width)
    assert x.shape == (rows.rows, width)
    assert stats.kstest(x.ravel().numpy(), "norm").pvalue > P
    if width > 1:
        assert largest_correlation(x.double().numpy()) < SIGMAS


# -- whole numbers ---------------------------------------------------------------------------------


def test_below_stays_within_its_clients_limit_and_is_uniform(rows: Cohort) -> None:
    limits = torch.tensor([1, 7, 64, 300])
    numbers = draws(rows).below(rows, limits, 20, 1)
    assert numbers.dtype == torch.int64
    for mine, limit in zip(rows.parts_of(numbers), limits.tolist(), strict=True):
        assert mine.shape == (NODES, 20)
        assert int(mine.min()) >= 0
        assert int(mine.max()) < limit
        counts = torch.bincount(mine.ravel(), minlength=limit).numpy()
        assert len(counts) == limit
        if limit > 1:
            assert stats.chisquare(counts).pvalue > P
        if limit == 7:  # two numbers of a row make a pair that is uniform too
            pairs = torch.bincount((mine[:, ::2] * limit + mine[:, 1::2]).ravel(), minlength=limit**2)
            assert stats.chisquare(pairs.numpy()).pvalue > P


@given(seed=st.integers(0, 2**62), limits=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=4))
def test_below_any_limit(seed: int, limits: list[int]) -> None:
    cohort = lay(equal_clients(len(limits), 3))
    numbers = draws(cohort, seed=seed).below(cohort, torch.tensor(limits), 5, 0)
    assert (numbers >= 0).all()
    assert (numbers < torch.tensor(limits)[cohort.client].unsqueeze(1)).all()
