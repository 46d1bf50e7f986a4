"""How clients' rows lie side by side, and what clients do to them with weights of their own."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import LONG, NARROW, PADDING_LIMIT, Rows, batched
from support.clients import PADDING, assert_near, equal_clients

CPU = torch.device("cpu")
seeds = st.integers(0, 2**31)
# Clients without any row too: a client may have no training node.
sizes = st.lists(st.integers(0, 12), min_size=1, max_size=5)


def make(sizes: list[int], layout: str) -> Rows:
    return Rows(sizes, CPU, PADDING[layout])


def own_rows(rows: Rows, m: int) -> np.ndarray:
    return rows.start[m] + np.arange(rows.sizes[m])


def test_a_cohort_is_rows() -> None:
    assert issubclass(Cohort, Rows)
    assert isinstance(Cohort(equal_clients(2, 3)).training, Rows)


@pytest.mark.parametrize("layout", PADDING)
@given(sizes=sizes)
def test_each_row_has_an_owner_and_a_place(layout: str, sizes: list[int]) -> None:
    rows = make(sizes, layout)
    assert rows.clients == len(sizes)
    assert rows.rows == sum(rows.spans) == len(rows.client) == len(rows.position)
    expected = [(m, place) for m, span in enumerate(rows.spans) for place in range(span)]
    assert list(zip(rows.client.tolist(), rows.position.tolist(), strict=True)) == expected
    if layout == "padded":
        assert rows.spans == [max(sizes)] * len(sizes)
    elif any(sizes):
        assert rows.spans == sizes


@pytest.mark.parametrize("layout", PADDING)
@given(sizes=sizes)
def test_taken_are_the_rows_that_are_no_padding(layout: str, sizes: list[int]) -> None:
    rows = make(sizes, layout)
    assert rows.taken.tolist() == [int(row) for m in range(len(sizes)) for row in own_rows(rows, m)]


@pytest.mark.parametrize("layout", PADDING)
@given(sizes=sizes, seed=seeds, width=st.sampled_from([(), (3,), (2, 2)]))
def test_parts_of_is_the_inverse_of_rows_of(layout: str, sizes: list[int], seed: int, width: tuple[int, ...]) -> None:
    rows = make(sizes, layout)
    stream = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, *width, generator=stream) for n in rows.sizes]
    laid = rows.rows_of(parts, -3.0)
    assert laid.shape == (rows.rows, *width)
    assert all(torch.equal(one, two) for one, two in zip(rows.parts_of(laid), parts, strict=True))
    padding = torch.ones(rows.rows, dtype=torch.bool)
    for m in range(len(sizes)):
        padding[own_rows(rows, m)] = False
    assert bool((laid[padding] == -3.0).all())
    assert int(padding.sum()) == (0 if layout == "compact" else rows.rows - sum(rows.sizes))


def test_padding_is_chosen_by_what_it_wastes() -> None:
    def sized(*sizes: int) -> Rows:
        return Rows(sizes, CPU)

    assert sized(10, 10, 10).length == 10
    assert sized(13, 7).length == 13  # 26 rows for 20 nodes: exactly PADDING_LIMIT wasted
    assert sized(14, 6).length is None
    assert sized(1, 1, 50).length is None
    assert sized(5).length == 5
    assert PADDING_LIMIT == 0.3


@pytest.mark.parametrize("layout", PADDING)
@given(sizes=sizes, seed=seeds)
def test_diagonal_puts_blocks_where_it_is_told(layout: str, sizes: list[int], seed: int) -> None:
    rows, rng = make(sizes, layout), np.random.default_rng(seed)
    full = [rng.standard_normal((n, 3)) * (rng.random((n, 3)) < 0.5) for n in sizes]
    offsets = rng.integers(0, 8, len(sizes)).tolist()
    found = rows.diagonal([sp.csr_matrix(block) for block in full], offsets, 10)
    expected = np.zeros((rows.rows, 10))
    for m, (block, offset) in enumerate(zip(full, offsets, strict=True)):
        expected[own_rows(rows, m), offset : offset + 3] = block
    assert np.array_equal(found.toarray(), expected)


@pytest.mark.parametrize("layout", PADDING)
@given(sizes=sizes, seed=seeds)
def test_multiply_and_add(layout: str, sizes: list[int], seed: int) -> None:
    rows = make(sizes, layout)
    stream = torch.Generator().manual_seed(seed)
    h = torch.randn(rows.rows, 3, generator=stream)
    weight = torch.randn(len(sizes), 3, 5, generator=stream)
    bias = torch.randn(len(sizes), 5, generator=stream)
    out = rows.add(rows.multiply(h, weight), bias)
    assert_near(rows.affine(h, weight, bias), out)
    assert_near(rows.multiply_add(out, h, weight), out + rows.multiply(h, weight))
    for m in range(len(sizes)):
        assert_near(rows.parts_of(out)[m], rows.parts_of(h)[m].double() @ weight[m].double() + bias[m])


@pytest.mark.parametrize("layout", PADDING)
@given(sizes=sizes, seed=seeds)
def test_scale_multiplies_each_unit_of_a_client_by_a_factor_of_its_own(
    layout: str, sizes: list[int], seed: int
) -> None:
    rows = make(sizes, layout)
    stream = torch.Generator().manual_seed(seed)
    h = torch.randn(rows.rows, 3, generator=stream).requires_grad_()
    factor = torch.randn(len(sizes), 3, generator=stream).requires_grad_()
    out, pull = rows.scale(h, factor), torch.randn(rows.rows, 3, generator=stream)
    assert out.shape == h.shape
    to_h, to_factor = torch.autograd.grad((out * pull).sum(), [h, factor])
    own, scaled, pulls, back = (rows.parts_of(tensor.detach()) for tensor in (h, out, pull, to_h))
    spans = pull.split(rows.spans), h.detach().split(rows.spans)
    for m in range(len(sizes)):
        for unit in range(3):
            assert torch.equal(scaled[m][:, unit], own[m][:, unit] * factor[m, unit].detach())
            assert torch.equal(back[m][:, unit], pulls[m][:, unit] * factor[m, unit].detach())
        assert_near(to_factor[m], (spans[0][m].double() * spans[1][m].double()).sum(0))


@pytest.mark.parametrize("columns", [1, 2, NARROW - 1, NARROW])
def test_products_with_few_columns(columns: int) -> None:
    """Values and both gradients, also where one factor is constant."""
    stream = torch.Generator().manual_seed(columns)
    h, weight = torch.randn(3, NARROW, LONG, generator=stream), torch.randn(3, LONG, columns, generator=stream)
    pull = torch.randn(3, NARROW, columns, generator=stream)
    for constant in (None, 0, 1):
        found = []
        for product in (batched, torch.bmm):
            leaves = [each.clone().requires_grad_(i != constant) for i, each in enumerate((h, weight))]
            out = product(*leaves)
            wanted = [each for each in leaves if each.requires_grad]
            found.append([out.detach(), *torch.autograd.grad((out * pull).sum(), wanted)])
        for one, two in zip(*found, strict=True):
            assert_near(one, two)
            assert one.is_contiguous()
