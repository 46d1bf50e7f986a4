"""Tensors that rest on disk: they hold what is written whatever is released, and leave nothing behind."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.devices import offload
from fedquilt.errors import FedquiltError
from fedquilt.methods.averaging import patch_mean, weighted_mean
from fedquilt.methods.fedpub import thin_product
from support.clients import assert_near, numbers

DTYPES = [torch.float32, torch.int64, torch.bool]
Disk = namedtuple("Disk", "total used free")


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that nobody else writes to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def nothing_rests() -> Iterator[None]:
    """Whatever rests inside the test is dropped by its end."""
    gc.collect()
    before = dict(offload._mappings)
    yield
    gc.collect()
    assert offload._mappings == before


def some(dtype: torch.dtype, *shape: int) -> Tensor:
    return (numbers(7, *shape) * 1e3).to(dtype) if dtype != torch.bool else numbers(7, *shape) > 0


def resting(tensor: Tensor) -> Tensor:
    """The same numbers, on disk."""
    return offload.offloaded_zeros(tuple(tensor.shape), tensor.dtype).copy_(tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 4), (2, 3, 5), (700, 3)], ids=str)
def test_it_starts_with_zeros_and_holds_what_is_written(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor, expected = offload.offloaded_zeros(shape, dtype), some(dtype, *shape)
    assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == (shape, dtype, True)
    assert not tensor.any()
    tensor.copy_(expected)
    assert torch.equal(tensor, expected)
    tensor[-1] = 0
    expected[-1] = 0
    assert torch.equal(tensor, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 300, 1024, 3000])
@example(cuts=[(0, 40)])
@example(cuts=[(0, 0), (40, 40), (39, 40), (1, 2)])
@given(cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_releasing_any_rows_changes_no_number(width: int, dtype: torch.dtype, cuts: list[tuple[int, int]]) -> None:
    """Rows that end within a page, too: the rest of the page is someone else's."""
    expected = some(dtype, 40, width)
    tensor = resting(expected)
    for first, last in cuts:
        offload.release_pages(tensor[first:last])
    assert torch.equal(tensor, expected)
    for first, last in cuts:  # written again after it was let go
        offload.release_pages(tensor)
        expected[first:last] = 1
        tensor[first:last] = 1
        offload.release_pages(tensor[first:last], tensor)
    assert torch.equal(tensor, expected)


def test_releasing_what_is_not_in_one_piece_changes_no_number() -> None:
    expected = some(torch.float32, 64, 2048)
    tensor = resting(expected)
    offload.release_pages(tensor[::2], tensor[:, :3], tensor.T, tensor[5], tensor[5, 7], tensor.view(-1)[100:5000])
    assert torch.equal(tensor, expected)


def test_what_does_not_rest_is_left_alone() -> None:
    tensor = numbers(0, 30, 4)
    kept = tensor.clone()
    offload.release_pages(tensor, tensor[3:9])
    assert torch.equal(tensor, kept)


@pytest.mark.usefixtures("nothing_rests")
def test_rests_is_true_of_a_tensor_and_its_views_alone() -> None:
    tensor = offload.offloaded_zeros((6, 4), torch.float32)
    for view in (
        tensor,
        tensor[2:4],
        tensor[5],
        tensor.flatten(1),
        tensor.view(-1),
        tensor.T,
        tensor[1, 2],
        tensor[:0],
    ):
        assert offload.is_offloaded(view)
    for other in (tensor.clone(), tensor + 1, tensor[torch.tensor([1, 2])], torch.zeros(6, 4), torch.zeros(0)):
        assert not offload.is_offloaded(other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_like_is_where_the_other_is(dtype: torch.dtype) -> None:
    ours = offload.offloaded_zeros((3, 4), dtype)
    for view in (ours, ours[1:], ours[0]):
        other = offload.empty_like(view)
        assert (other.shape, other.dtype) == (view.shape, dtype)
        assert offload.is_offloaded(other)
        other.fill_(1)
        assert not ours.any()
    plain = offload.empty_like(torch.zeros(3, 4, dtype=dtype))
    assert (plain.shape, plain.dtype, offload.is_offloaded(plain)) == ((3, 4), dtype, False)


@pytest.mark.parametrize("rows", [1, 2, 5, 256])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 11])
def test_pieces_are_all_rows_once(count: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "CHUNK_ROWS", rows)
    stack = some(torch.bool, 12, 3)
    whole = resting(stack)[:count]
    seen = list(offload.row_chunks(whole))
    assert [row for where, _ in seen for row in range(*where.indices(count))] == list(range(count))
    assert all(len(piece) <= rows for _, piece in seen)
    assert all(torch.equal(piece, stack[where]) for where, piece in seen)
    for _, piece in offload.row_chunks(whole):  # they are the rows themselves
        piece.fill_(True)
    assert whole.all()
    (where, piece), *more = offload.row_chunks(stack[:count])  # what is in memory comes at once
    assert (where, more) == (slice(0, count), [])
    assert torch.equal(piece, stack[:count])


@pytest.mark.parametrize("rows", [1, 3, 256])
def test_averages_of_what_rests_are_those_in_memory(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "CHUNK_ROWS", rows)
    stack, seen, weight = numbers(0, 7, 4, 3), numbers(1, 7, 4).abs(), numbers(2, 7).abs()
    ours = resting(stack)
    for make, tensor in (
        (lambda stack: weighted_mean(stack, weight), (weight / weight.sum()) @ stack.flatten(1)),
        (lambda stack: patch_mean(stack, seen), torch.einsum("mp,mph->ph", seen / seen.sum(0), stack)),
        (lambda stack: patch_mean(stack.transpose(1, -1), seen[:, :3]), None),
        (lambda stack: thin_product(numbers(3, 2, 7), stack), numbers(3, 2, 7) @ stack.flatten(1)),
    ):
        assert_near(make(ours), make(stack))
        if tensor is not None:
            assert_near(make(ours).flatten(), tensor.flatten())
    assert torch.equal(ours, stack)


# -- what is left behind -----------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_rests")
def test_a_tensor_is_dropped_when_its_last_view_is() -> None:
    before = len(offload._mappings)
    tensors = [offload.offloaded_zeros((5, 5), torch.float32) for _ in range(4)]
    view = tensors[0][2:]
    assert len(offload._mappings) == before + 4
    tensors.clear()
    gc.collect()
    assert len(offload._mappings) == before + 1
    view.fill_(2.0)
    assert offload.is_offloaded(view)
    assert float(view.sum()) == 30.0
    del view
    gc.collect()
    assert len(offload._mappings) == before


def test_the_file_has_no_name(room: Path) -> None:
    tensor = offload.offloaded_zeros((1000, 1000), torch.float32)
    tensor.fill_(1.0)
    assert list(room.iterdir()) == []
    with Path("/proc/self/maps").open() as maps:  # but it is there
        assert any(str(room) in line for line in maps)
    offload.release_pages(tensor)
    assert float(tensor.sum()) == 1e6
    del tensor
    gc.collect()
    assert list(room.iterdir()) == []


def test_nothing_is_left_by_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal, torch; from fedquilt.devices import offload\n"
        "t = offload.offloaded_zeros((1000, 100), torch.float32).fill_(1.0); offload.release_pages(t)\n"
        "print(float(t.sum()), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.strip() == "100000.0"
    assert list(tmp_path.iterdir()) == []


def resident() -> int:
    """Bytes of mapped files that are in this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssFile", "RssShmem")))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says what is in memory")
def test_what_is_released_is_not_in_memory() -> None:
    size, slack = 200 * 2**20, 20 * 2**20
    before = resident()
    tensor = offload.offloaded_zeros((200, 2**18), torch.float32)
    assert resident() < before + slack  # nothing was touched yet
    tensor.fill_(3.0)
    assert resident() > before + size - slack
    offload.release_pages(tensor[:100])
    assert abs(resident() - before - size // 2) < slack
    offload.release_pages(tensor[100:])
    assert resident() < before + slack
    assert float(tensor[150].sum()) == 3.0 * 2**18  # it comes back by itself
    for rows, piece in offload.row_chunks(tensor):  # and goes when the pieces have been looked at
        assert float(piece[:, 0].sum()) == 3.0 * (rows.stop - rows.start)
    assert resident() < before + slack


# -- too little room -----------------------------------------------------------------------------------


def test_too_little_room_is_one_sentence(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def usage(folder: str) -> Disk:
        asked.append(folder)
        return Disk(10**12, 0, offload._SPARE_BYTES + 2**20)

    monkeypatch.setattr("shutil.disk_usage", usage)
    offload.offloaded_zeros((2**20,), torch.bool)
    with pytest.raises(FedquiltError) as refused:
        offload.offloaded_zeros((2**18 + 1,), torch.float32)
    said = str(refused.value)
    assert said == (
        f"The clients' models need 0.0 GiB on disk or more, and {room} has only 1.0 GiB for them; "
        "set TMPDIR to a folder with more room, or use fewer clients or a smaller model."
    )
    with pytest.raises(FedquiltError, match=r"need 120\.0 GiB on disk"):
        offload.offloaded_zeros((30, 2**30), torch.float32)
    assert set(asked) == {str(room)}
    assert list(room.iterdir()) == []


def test_room_that_was_promised_is_not_promised_again(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a federation's tensors are made before any is written; one that does not fit then ends the process."""
    taken: list[int] = []

    def reserve(file: int, first: int, size: int) -> None:
        taken.append(size)
        if sum(taken) > 10 * 2**20:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", reserve)  # whichever way it is looked after
    monkeypatch.setattr("shutil.disk_usage", lambda folder: Disk(10**12, 0, offload._SPARE_BYTES + 10 * 2**20))
    held = [offload.offloaded_zeros((2**18,), torch.float32) for _ in range(10)]
    with pytest.raises(FedquiltError, match="set TMPDIR"):
        held.append(offload.offloaded_zeros((2**18,), torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_a_tensor_may_be_empty(dtype: torch.dtype) -> None:
    assert offload.offloaded_zeros((5, 0), dtype).shape == (5, 0)


def test_rows_move_to_the_front_of_what_rests() -> None:
    whole = torch.arange(20.0).view(10, 2)
    rows = torch.tensor([1, 4, 5, 9])
    resting = offload.offloaded_copy(whole)
    moved = offload.moved_to_front(resting, rows)
    assert torch.equal(moved, whole[rows])
    assert moved.data_ptr() == resting.data_ptr()  # nothing was allocated
    assert torch.equal(offload.moved_to_front(whole, rows), whole[rows])
    assert torch.equal(whole, torch.arange(20.0).view(10, 2))  # of what is in memory a copy is made
    assert len(offload.moved_to_front(offload.offloaded_copy(whole), rows[:0])) == 0
