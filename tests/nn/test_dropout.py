"""Dropout's masks: the right share, no pattern, and a client's own whatever the cohort."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import _GOLDEN, _mix64, client_keys
from fedquilt.nn.dropout import Dropout
from support.clients import client_lists, equal_clients, lay

RATES = [0.5, 0.1, 0.25, 0.37]
NODES, WIDTH = 1000, 128
# Masks are a fixed function of the seed, so these bounds hold for ever once they hold. Five standard
# deviations (and p-values of 1e-5) are far outside chance for the few hundred comparisons below.
SIGMAS, P = 5.0, 1e-5


@pytest.fixture(scope="module")
def rows() -> Cohort:
    return lay(equal_clients(4, NODES))


def keep(cohort: Cohort, rate: float = 0.5, step: int = 0, layer: int = 0, width: int = WIDTH, seed: int = 0) -> Tensor:
    return Dropout(rate, client_keys(seed, cohort), step).keep(cohort, width, layer)


def by_client(cohort: Cohort, mask: Tensor) -> Tensor:
    """[M, n, width] as float64."""
    return mask.view(cohort.clients, NODES, -1).double()


def correlation(one: Tensor, two: Tensor) -> float:
    """In standard deviations of what independent draws would give."""
    matrix = np.corrcoef(one.ravel().numpy(), two.ravel().numpy())
    return abs(float(matrix[0, 1])) * math.sqrt(one.numel())


def levels(cohort: Cohort, step: int, layer: int) -> Tensor:
    """The top four bits behind each entry, 0..15, found by asking for the masks of fifteen rates."""
    return sum(keep(cohort, k / 16, step, layer).long() for k in range(1, 16))  # type: ignore[return-value]


def chi_square(values: Tensor, cells: int) -> None:
    counts = torch.bincount(values.ravel(), minlength=cells).numpy()
    assert len(counts) == cells
    assert P < stats.chisquare(counts).pvalue < 1 - P


# -- how many --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
def test_the_share_kept_is_one_minus_the_rate(rows: Cohort, rate: float) -> None:
    masks = torch.stack([keep(rows, rate, step, layer) for step in range(8) for layer in (0, 1)]).double()
    error = math.sqrt(rate * (1 - rate) / masks.numel())
    # Sixteen bits cannot say 0.1 exactly: they are at most 2^-17 off.
    assert abs(float(masks.mean()) - (1 - rate)) < SIGMAS * error + 2**-17
    # So for each client, each column and each place in the four entries that share a word.
    for share in (masks.view(16, 4, NODES, WIDTH).mean((0, 2, 3)), masks.mean((0, 1))):
        error = math.sqrt(rate * (1 - rate) / (masks.numel() / share.numel()))
        assert float((share - (1 - rate)).abs().max()) < SIGMAS * error + 2**-17


def test_rate_zero_is_plain_relu(rows: Cohort) -> None:
    h = torch.randn(rows.rows, 5)
    assert keep(rows, 0.0, width=5).all()
    assert torch.equal(Dropout(0.0, client_keys(0, rows), 0)(rows, h, 0), torch.relu(h))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 127, 128, 129])
@pytest.mark.parametrize("rate", [0.5, 0.1])
def test_any_width(rows: Cohort, rate: float, width: int) -> None:
    mask = keep(rows, rate, width=width)
    assert mask.shape == (rows.rows, width)
    assert mask.dtype == torch.float32
    assert bool(((mask == 0) | (mask == 1)).all())
    error = math.sqrt(rate * (1 - rate) / mask.numel())
    assert abs(float(mask.double().mean()) - (1 - rate)) < SIGMAS * error


@pytest.mark.parametrize("rate", [*RATES, 0.0, 0.9, 0.999, 1 / 3])
def test_scale_keeps_the_expectation(rate: float) -> None:
    dropout = Dropout(rate, torch.zeros(1, dtype=torch.int64), 0)
    kept = 1 - round(rate * 2**dropout.bits) / 2**dropout.bits  # exactly the probability of an entry to survive
    assert dropout.scale * kept == pytest.approx(1.0, abs=1e-12)
    assert kept == pytest.approx(1 - rate, abs=2**-17)


@pytest.mark.parametrize("rate", RATES)
def test_the_mean_over_steps_is_the_input(rows: Cohort, rate: float) -> None:
    keys = client_keys(0, rows)
    h = torch.ones(rows.rows, 32)
    mean = torch.stack([Dropout(rate, keys, step)(rows, h, 0) for step in range(20)]).double().mean()
    assert abs(float(mean) - 1) < SIGMAS * math.sqrt(rate / (1 - rate) / (20 * h.numel())) + 1e-4


# -- without pattern -------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
def test_neighbouring_entries_are_uncorrelated(rows: Cohort, rate: float) -> None:
    masks = torch.stack([by_client(rows, keep(rows, rate, step)) for step in range(2)])
    for apart in (1, 2, 3, 4, 5, 8, 16, 32, 64):
        assert correlation(masks[..., :-apart], masks[..., apart:]) < SIGMAS  # columns
        assert correlation(masks[:, :, :-apart], masks[:, :, apart:]) < SIGMAS  # rows


@pytest.mark.parametrize("rate", RATES)
def test_clients_steps_layers_and_seeds_are_uncorrelated(rows: Cohort, rate: float) -> None:
    clients = by_client(rows, keep(rows, rate))
    for one, two in itertools.combinations(clients, 2):
        assert correlation(one, two) < SIGMAS
    others = [
        keep(rows, rate, step, layer, seed=seed)
        for step, layer, seed in itertools.product([0, 1, 2, 64], [0, 1, 63], [0, 1])
    ]
    for one, two in itertools.combinations(others, 2):
        assert correlation(one[:1000].double(), two[:1000].double()) < SIGMAS


def test_a_step_does_not_run_into_the_next_layer(rows: Cohort) -> None:
    """(step, layer) is one number inside: no pair may stand for another."""
    first = {}
    for step, layer in itertools.product(range(30), range(0, 64, 7)):
        bits = keep(rows, step=step, layer=layer)[:1].numpy().tobytes()
        assert bits not in first, f"{(step, layer)} draws what {first.get(bits)} draws"
        first[bits] = (step, layer)


def test_bits_are_uniform_alone_and_in_pairs(rows: Cohort) -> None:
    for step, layer in ((0, 0), (5, 1)):
        value = levels(rows, step, layer)
        chi_square(value, 16)
        for lane in range(4):
            chi_square(value[:, lane::4], 16)
        chi_square(value[:, :-1] * 16 + value[:, 1:], 256)  # the next column
        chi_square(value[:, :-4] * 16 + value[:, 4:], 256)  # the same place in the next word
        chi_square(value[:-1] * 16 + value[1:], 256)  # the next row
    chi_square(levels(rows, 0, 0) * 16 + levels(rows, 1, 0), 256)  # the next step
    chi_square(levels(rows, 0, 0) * 16 + levels(rows, 0, 1), 256)  # the next layer
    split = levels(rows, 0, 0).view(4, NODES, WIDTH)
    chi_square(split[0] * 16 + split[1], 256)  # the next client


def test_eight_entries_in_a_row_take_all_patterns_equally(rows: Cohort) -> None:
    bits = torch.cat([keep(rows, step=step) for step in range(4)]).view(-1, 8).long()
    chi_square((bits << torch.arange(8)).sum(1), 256)


def test_columns_are_uncorrelated_pair_by_pair(rows: Cohort) -> None:
    """All 8,128 pairs of columns at once: the largest of so many independent ones is under 5.5 deviations."""
    mask = torch.cat([keep(rows, step=step) for step in range(4)]).numpy()
    matrix = np.corrcoef(mask, rowvar=False)
    assert np.abs(matrix - np.eye(WIDTH)).max() * math.sqrt(len(mask)) < 5.5


def test_no_row_is_repeated(rows: Cohort) -> None:
    """Rows of 128 fair bits: among 160,000 a repetition by chance has probability 1e-28."""
    masks = torch.cat([keep(rows, step=step, layer=layer) for step in range(20) for layer in (0, 1)])
    packed = np.packbits(masks.numpy().astype(bool), axis=1)
    assert len(np.unique(packed, axis=0)) == len(packed)


def test_streams_that_start_close_together_do_not_run_along(rows: Cohort) -> None:
    """Two steps whose counters overlap, row by row: without a second keyed word one repeats the other."""
    words = WIDTH // 4
    key = client_keys(0, rows)[:1]
    offsets = torch.arange(40_000) * 64 + 1
    low = _mix64(key + offsets * _GOLDEN).to(torch.int32).long()
    order = low.argsort()
    apart = low[order].diff()
    close = torch.nonzero((apart % words == 0) & (apart < 100 * words)).ravel()
    assert len(close) > 5
    for place in close.tolist():
        shift = int(apart[place]) // words
        first, second = (keep(rows, step=int(order[place + side]))[:NODES].double() for side in (0, 1))
        assert correlation(first[shift:], second[: NODES - shift]) < SIGMAS


def test_the_number_of_survivors_in_a_row_is_binomial(rows: Cohort) -> None:
    counts = torch.cat([keep(rows, step=step) for step in range(4)]).sum(1).numpy()
    edges = np.arange(50, 80)
    seen = np.histogram(counts, bins=[-np.inf, *(edges + 0.5), np.inf])[0]
    cumulative = np.concatenate([[0], stats.binom.cdf(edges, WIDTH, 0.5), [1]])
    assert P < stats.chisquare(seen, np.diff(cumulative) * len(counts)).pvalue < 1 - P


# -- a client's own --------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.5, 0.1])
@given(clients=client_lists(), seed=st.integers(0, 2**62), step=st.integers(0, 10**7), width=st.integers(1, 40))
def test_a_mask_is_the_same_in_any_cohort(rate: float, clients: list[Client], seed: int, step: int, width: int) -> None:
    together = {rows: lay(clients, rows) for rows in ("padded", "compact")}
    parts = {rows: cohort.parts_of(keep(cohort, rate, step, 1, width, seed)) for rows, cohort in together.items()}
    half = len(clients) // 2
    chunks = [lay(chunk) for chunk in (clients[:half], clients[half:]) if chunk]
    parts["chunked"] = [part for c in chunks for part in c.parts_of(keep(c, rate, step, 1, width, seed))]
    for m, client in enumerate(clients):
        alone = keep(lay([client]), rate, step, 1, width, seed)
        assert alone.shape == (client.graph.nodes, width)
        for rows in parts:
            assert torch.equal(parts[rows][m], alone)


def test_keys_belong_to_the_client_not_to_its_place() -> None:
    clients = equal_clients(5, 2)
    keys = client_keys(4, lay(clients))
    assert torch.equal(client_keys(4, lay(clients[::-1])), keys.flip(0))
    assert torch.equal(client_keys(4, lay([clients[3]])), keys[3:4])
    assert len(keys.unique()) == 5
    assert not torch.isin(client_keys(5, lay(clients)), keys).any()


def test_a_mask_is_pinned() -> None:
    """What a seed gives must not change from one version to the next: a resumed run would go another way."""
    mask = keep(lay(equal_clients(2, 2)), 0.5, 3, 1, 8, seed=11)
    assert ["".join("01"[int(bit)] for bit in row) for row in mask] == [
        "11111110",
        "10100110",
        "10101100",
        "00100100",
    ]


# -- forward and backward --------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
def test_gradient_is_mask_times_scale(rows: Cohort, rate: float) -> None:
    dropout = Dropout(rate, client_keys(0, rows), 2)
    h = torch.randn(rows.rows, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    pull = torch.randn(rows.rows, 9, generator=torch.Generator().manual_seed(1))
    out = dropout(rows, h, 1)
    (out * pull).sum().backward()
    through = dropout.keep(rows, 9, 1).bool() & (h > 0)
    assert torch.allclose(out, torch.relu(h) * dropout.keep(rows, 9, 1) * dropout.scale)
    assert torch.allclose(h.grad, pull * through * dropout.scale)
    assert not h.grad[~through].any()


def test_the_same_call_gives_the_same_mask(rows: Cohort) -> None:
    one = keep(rows, 0.37, 5, 1)
    torch.manual_seed(9)
    assert torch.equal(keep(rows, 0.37, 5, 1), one)
    assert not torch.equal(keep(rows, 0.37, 6, 1), one)
    assert not torch.equal(keep(rows, 0.37, 5, 0), one)
    assert not torch.equal(keep(rows, 0.37, 5, 1, seed=1), one)
