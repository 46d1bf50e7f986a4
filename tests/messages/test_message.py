"""What a method may send: declared names alone, and every byte of them counted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.messages.message import Sparse, TensorSpec, UndeclaredError, check, declared, dense, message_bytes

CROSSINGS = (
    TensorSpec("model.*", "The model."),
    TensorSpec("train_nodes", "How many training nodes."),
    TensorSpec("graph_seed", "Nothing.", shared=True),
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
