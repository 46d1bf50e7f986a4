"""What a method may send: declared names alone, and every byte of them counted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.devices import offload
from fedquilt.messages.message import (
    Factored,
    Message,
    Sparse,
    TensorSpec,
    UndeclaredError,
    check,
    declared,
    dense,
    each_tensor,
    message_bytes,
    message_bytes_on_device,
    moved,
)
from fedquilt.messages.slicing import slice_message
from support.clients import assert_near, numbers

CROSSINGS = (
    TensorSpec("model.*", "The model."),
    TensorSpec("train_nodes", "How many training nodes."),
    TensorSpec("graph_seed", "Nothing.", shared=True),
    TensorSpec("own", "One a client."),
    TensorSpec("same", "One for all.", shared=True),
)


def test_a_declared_message_passes() -> None:
    check({}, CROSSINGS, "some", "upload")
    check({"model.conv1.weight": torch.ones(1), "train_nodes": torch.ones(1)}, CROSSINGS, "some", "upload")


@pytest.mark.parametrize(
    "name",
    ["labels", "model", "Model.weight", "train_nodes2", "xtrain_nodes", "train_node", "a model.weight", ""],
)
def test_an_undeclared_name_is_refused(name: str) -> None:
    message = {"train_nodes": torch.ones(1), name: torch.ones(1)}
    with pytest.raises(UndeclaredError, match=f"Method 'some' tried to upload '{name}'"):
        check(message, CROSSINGS, "some", "upload")


@given(st.text(max_size=12))
def test_without_declarations_nothing_crosses(name: str) -> None:
    with pytest.raises(UndeclaredError):
        check({name: torch.ones(1)}, (), "some", "download")


def test_a_pattern_covers_what_it_matches() -> None:
    assert declared(CROSSINGS, "model.conv1.weight") is CROSSINGS[0]
    assert declared(CROSSINGS, "model.") is CROSSINGS[0]
    assert declared(CROSSINGS, "graph_seed") is CROSSINGS[2]
    assert declared(CROSSINGS, "seed") is None


def test_the_first_declaration_counts() -> None:
    special = TensorSpec("model.conv1.weight", "Shared.", shared=True)
    assert declared((special, *CROSSINGS), "model.conv1.weight") is special
    assert declared((special, *CROSSINGS), "model.conv2.weight") is CROSSINGS[0]


def test_a_name_with_brackets_is_itself() -> None:
    """As a pattern, brackets are a choice of letters; as a name, they are brackets."""
    spec = TensorSpec("layer[0]", "A layer.")
    assert declared((spec,), "layer[0]") is spec


@given(
    clients=st.integers(1, 5),
    receivers=st.integers(1, 9),
    size=st.integers(1, 20),
    kind=st.sampled_from([torch.float32, torch.int64, torch.uint8, torch.float16]),
)
def test_bytes_of_dense_tensors(clients: int, receivers: int, size: int, kind: torch.dtype) -> None:
    """A tensor a client counts as it is; one for all counts once for everyone who receives it."""
    message = {
        "model.w": torch.zeros(clients, size, dtype=kind),
        "graph_seed": torch.zeros(size, dtype=kind),
    }
    width = torch.empty(0, dtype=kind).element_size()
    assert message_bytes(message, CROSSINGS, receivers) == {
        "model.w": clients * size * width,
        "graph_seed": receivers * size * width,
    }


@given(seed=st.integers(0, 2**31), clients=st.integers(1, 4), filled=st.sampled_from([0.0, 0.3, 0.9, 0.97, 1.0]))
def test_bytes_of_sparse_tensors(seed: int, clients: int, filled: float) -> None:
    stream = torch.Generator().manual_seed(seed)
    tensor = torch.ones(clients, 5, 9) * (torch.rand(clients, 5, 9, generator=stream) < filled)
    each = [min(int((one != 0).sum()) * 4 + 6, 180) for one in tensor]  # 45 positions fit in 6 bytes
    assert Sparse(tensor).bytes_each().tolist() == each
    assert message_bytes({"model.w": Sparse(tensor)}, CROSSINGS, clients) == {"model.w": sum(each)}


def test_dense_gives_the_tensor_itself() -> None:
    tensor = torch.ones(2, 3)
    assert dense(tensor) is tensor
    assert dense(Sparse(tensor)) is tensor


def test_an_undeclared_name_is_a_defect_of_the_method_not_bad_input() -> None:
    from fedquilt.errors import FedquiltError

    assert not issubclass(UndeclaredError, FedquiltError)


SHAPES = [(), (3,), (2, 5)]


def factored(seed: int, clients: int, rank: int, shape: tuple[int, ...]) -> Factored:
    left, right, own = numbers(seed, clients, rank), numbers(seed + 1, rank, 4, *shape), numbers(seed + 2, clients)
    return Factored(left, right, own, numbers(seed + 3, clients, 4, *shape))


def written_out(value: Factored) -> Tensor:
    rest = (1,) * (value.stack.dim() - 1)
    return torch.tensordot(value.left, value.right, dims=1) + value.own.view(-1, *rest) * value.stack


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(seed=st.integers(0, 2**31), clients=st.integers(1, 6), rank=st.integers(0, 3), data=st.data())
def test_rows_are_those_of_the_matrix(
    shape: tuple[int, ...], seed: int, clients: int, rank: int, data: st.DataObject
) -> None:
    value = factored(seed, clients, rank, shape)
    expected = written_out(value)
    kept = [tensor.clone() for tensor in each_tensor(value)]
    first = data.draw(st.integers(0, clients))
    last = data.draw(st.integers(first, clients))
    assert value.rows(first, last).shape == (last - first, 4, *shape)
    assert_near(value.rows(first, last), expected[first:last])
    assert_near(dense(value), expected)
    for tensor, before in zip(each_tensor(value), kept, strict=True):
        assert torch.equal(tensor, before)


def test_rows_that_rest_on_disk() -> None:
    value = factored(0, 6, 2, (700,))
    resting = offload.offloaded_zeros(tuple(value.stack.shape), torch.float32).copy_(value.stack)
    thin = Factored(value.left, value.right, value.own, resting)
    for first, last in ((0, 2), (2, 6), (0, 6)):
        assert torch.equal(thin.rows(first, last), value.rows(first, last))
    assert torch.equal(resting, value.stack)


def test_the_tensors_a_value_is_held_as() -> None:
    value = factored(0, 3, 2, (2,))
    assert each_tensor(value) == (value.left, value.right, value.own, value.stack)
    tensor = numbers(0, 3)
    assert each_tensor(tensor) == (tensor,)
    assert each_tensor(Sparse(tensor)) == (tensor,)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rank", [1, 3])
def test_bytes_are_those_of_what_each_client_is_sent(shape: tuple[int, ...], rank: int) -> None:
    """However it is kept: a client is sent its own row."""
    value = factored(0, 5, rank, shape)
    message = {"own": value, "same": numbers(0, 7)}
    sent = dense(value)
    expected = {"own": sent.numel() * 4, "same": 7 * 4 * 5}
    assert message_bytes(message, CROSSINGS, 5) == message_bytes_on_device(message, CROSSINGS, 5) == expected
    parts = [slice_message(message, CROSSINGS, first, last) for first, last in ((0, 2), (2, 5))]
    assert sum(message_bytes(part, CROSSINGS, 0)["own"] for part in parts) == expected["own"]


def test_bytes_that_depend_on_the_numbers_are_not_looked_at() -> None:
    tensor = torch.eye(4).view(2, 8)
    counts = message_bytes_on_device({"own": Sparse(tensor), "same": numbers(0, 3)}, CROSSINGS, 2)
    assert isinstance(counts["own"], Tensor)
    assert counts["own"].shape == ()
    assert counts["own"].dtype == torch.int64
    assert isinstance(counts["same"], int)
    assert {name: int(count) for name, count in counts.items()} == {"own": 2 * (2 * 4 + 1), "same": 24}


@pytest.mark.parametrize("cuts", [[(0, 5)], [(0, 2), (2, 4), (4, 5)], [(m, m + 1) for m in range(5)]], ids=str)
def test_each_cohort_is_handed_its_own_rows(cuts: list[tuple[int, int]]) -> None:
    message: Message = {"own": factored(3, 5, 2, (3,)), "same": numbers(1, 2)}
    parts = [slice_message(message, CROSSINGS, first, last) for first, last in cuts]
    assert all(isinstance(part["own"], Tensor) for part in parts)
    assert_near(torch.cat([part["own"] for part in parts]), written_out(message["own"]))
    assert all(part["same"] is message["same"] for part in parts)


def test_moving_keeps_every_kind() -> None:
    message: Message = {"a": factored(0, 3, 2, (2,)), "b": Sparse(torch.eye(3)), "c": numbers(0, 3)}
    there = moved(message, torch.device("meta"))
    back = moved(message, torch.device("cpu"))
    assert [type(value) for value in there.values()] == [type(value) for value in message.values()]
    for name, value in message.items():
        for tensor, far, near in zip(
            each_tensor(value), each_tensor(there[name]), each_tensor(back[name]), strict=True
        ):
            assert (far.device.type, far.shape, far.dtype) == ("meta", tensor.shape, tensor.dtype)
            assert torch.equal(near, tensor)
