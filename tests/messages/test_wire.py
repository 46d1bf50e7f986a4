"""Messages as bytes: what is counted is sent, what is sent comes back, and nothing else is believed."""

from __future__ import annotations

import json
import pickle
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from fedquilt.messages.message import Message, Sparse, Value, message_bytes
from fedquilt.messages.wire import HEADER_LIMIT, decode, encode

shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3)
filled = st.sampled_from([0.0, 0.02, 0.3, 0.9, 0.965, 0.97, 0.98, 1.0])


def draw_sparse(seed: int, shape: list[int], share: float) -> Sparse:
    stream = torch.Generator().manual_seed(seed)
    values = torch.rand(1, *shape, generator=stream) + 0.5
    return Sparse(values * (torch.rand(1, *shape, generator=stream) < share))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    names = draw(st.lists(st.text(min_size=1, max_size=8).filter(sendable), max_size=4, unique=True))
    message: Message = {}
    for name in names:
        seed, shape = draw(st.integers(0, 2**31)), draw(shapes)
        if draw(st.booleans()):
            message[name] = draw_sparse(seed, shape, draw(filled))
        else:
            stream = torch.Generator().manual_seed(seed)
            kind = draw(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool]))
            message[name] = (torch.randn(shape, generator=stream) * 50).abs().to(kind)
    return message


def sendable(name: str) -> bool:
    """A name that UTF-8 can write, and that neither safetensors nor sparse tensors keep to themselves."""
    return name.isprintable() and name != "__metadata__" and not name.endswith(("#values", "#kept"))


def payload(data: bytes) -> int:
    """The bytes after safetensors' header."""
    (header,) = struct.unpack("<Q", data[:8])
    return len(data) - 8 - header


def same(one: Value, two: Value) -> bool:
    if isinstance(one, Sparse) and isinstance(two, Sparse):
        one, two = one.tensor, two.tensor
    return isinstance(one, Tensor) and isinstance(two, Tensor) and one.dtype == two.dtype and torch.equal(one, two)


def same_message(one: Message, two: Message) -> bool:
    return set(one) == set(two) and all(same(one[name], two[name]) for name in one)


# -- there and back --------------------------------------------------------------------------------


@settings(max_examples=60)
@given(message=messages())
def test_what_is_sent_comes_back(message: Message) -> None:
    assert same_message(decode(encode(message)), message)


@settings(max_examples=60)
@given(message=messages())
def test_the_ledger_counts_the_bytes_that_are_sent(message: Message) -> None:
    """One client's message: the bytes after the header are those the ledger counts, to the byte."""
    data = encode(message)
    assert sum(message_bytes(message, (), 1).values()) == payload(data)
    assert payload(data) == sum(t.numel() * t.element_size() for t in load(data).values())


@settings(max_examples=60)
@given(seed=st.integers(0, 2**31), shape=shapes, share=filled)
def test_a_sparse_tensor_takes_what_it_says(seed: int, shape: list[int], share: float) -> None:
    sparse = draw_sparse(seed, shape, share)
    data = encode({"w": sparse})
    assert payload(data) == int(sparse.bytes_each()[0]) <= sparse.tensor.numel() * 4
    assert same(decode(data)["w"], sparse)


@pytest.mark.parametrize(("zeros", "parts"), [(0, {"w"}), (64, {"w#values", "w#kept"})])
def test_full_and_empty(zeros: int, parts: set[str]) -> None:
    """All zero: positions alone, one bit each. Full: the values alone."""
    sparse = Sparse(torch.cat([torch.zeros(1, zeros), torch.ones(1, 64 - zeros)], dim=1))
    data = encode({"w": sparse})
    assert set(load(data)) == parts
    assert payload(data) == (8 if zeros else 256)
    assert same(decode(data)["w"], sparse)


def test_special_values_survive() -> None:
    tensor = torch.zeros(1, 100)
    tensor[0, :4] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e-45])
    back = decode(encode({"w": Sparse(tensor)}))["w"]
    assert isinstance(back, Sparse)
    assert torch.equal(back.tensor.nan_to_num(7.0), tensor.nan_to_num(7.0))
    assert bool(back.tensor[0, 0].isnan())


def test_tensors_may_be_views_of_one_another() -> None:
    """A shared weight, or slices of one stack: both are written in full."""
    stack = torch.arange(12.0).view(3, 4)
    message: Message = {
        "a": stack[0],
        "b": stack[0],
        "c": stack.T,
        "d": stack[0].expand(2, 4),
        "e": Sparse(stack[:1]),
    }
    assert same_message(decode(encode(message)), message)


def test_small_and_empty_tensors() -> None:
    message: Message = {
        "number": torch.tensor(3),
        "none": torch.zeros(0, 3),
        "nothing": Sparse(torch.zeros(1, 0)),
    }
    assert same_message(decode(encode(message)), message)
    assert decode(encode({})) == {}


def test_gradients_stay_at_home() -> None:
    weight = torch.ones(2, 2, requires_grad=True)
    back = decode(encode({"w": weight, "s": Sparse(weight)}))
    assert isinstance(back["w"], Tensor)
    assert not back["w"].requires_grad


@pytest.mark.parametrize("name", ["w#values", "w#kept"])
def test_names_of_sparse_parts_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        encode({name: torch.ones(2)})


# -- from a stranger -------------------------------------------------------------------------------


VALUES, KEPT = torch.ones(3), torch.tensor([0b11100000], dtype=torch.uint8)
SOUND = encode({"model.w": Sparse(torch.eye(12).unsqueeze(0)), "train_nodes": torch.tensor([5.0])})


def forged(claims: object, **tensors: Tensor) -> bytes:
    return save({name.replace("_", "#"): t for name, t in tensors.items()}, metadata={"sparse": json.dumps(claims)})


def raw(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        decode(data)


@settings(max_examples=60)
@given(st.integers(0, len(SOUND) - 1))
def test_a_truncated_message_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="not a message"):
        decode(SOUND[:length])


def test_a_message_with_something_after_it_is_refused() -> None:
    with pytest.raises(ValueError, match="not a message"):
        decode(SOUND + b"x")


@settings(max_examples=300)
@given(place=st.integers(0, len(SOUND) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_gives_a_message_or_a_value_error(place: int, byte: int) -> None:
    """Bytes of a value may change unnoticed (they are values); what comes out is tensors of bounded size."""
    data = SOUND[:place] + bytes([byte]) + SOUND[place + 1 :]
    try:
        message = decode(data)
    except ValueError:
        return
    for value in message.values():
        tensor = value.tensor if isinstance(value, Sparse) else value
        assert isinstance(tensor, Tensor)
        assert tensor.numel() <= 32 * len(data)


@pytest.mark.parametrize(
    "claims",
    [
        [1, 2],
        "x",
        7,
        None,
        {"a": None},
        {"a": 3},
        {"a": "3"},
        {"a": ["3"]},
        {"a": [3.0]},
        {"a": [True, 3]},
        {"a": [-1]},
        {"a": [-3, -1]},
        {"a": [12]},
        {"a": [2]},
        {"a": [0]},
        {"a": [6, 2]},
        {"a": [10**12]},
        {"a": [2**32, 2**32]},
        {"a": [2**63]},
        {"a": [10**30]},
        {"a": {}},
        {"b": [3]},
        {"a": [3], "b": [3]},
    ],
)
@pytest.mark.parametrize("stored", ["dense", "sparse"])
def test_false_claims_about_shapes_are_refused(claims: object, stored: str) -> None:
    parts = {"a": VALUES} if stored == "dense" else {"a_values": VALUES, "a_kept": KEPT}
    with pytest.raises(ValueError, match="not a message"):
        decode(forged(claims, **parts))


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (VALUES.double(), KEPT),
        (VALUES.long(), KEPT),
        (VALUES.view(3, 1), KEPT),
        (VALUES[:2].clone(), KEPT),
        (torch.ones(4), KEPT),
        (VALUES, KEPT.float()),
        (VALUES, KEPT.to(torch.int8)),
        (VALUES, KEPT.view(1, 1)),
        (VALUES, KEPT.repeat(2)),
        (VALUES, KEPT[:0].clone()),
        (VALUES, torch.tensor([0b11000000], dtype=torch.uint8)),
        (VALUES, torch.tensor([0b00000111], dtype=torch.uint8)),
    ],
)
def test_parts_that_do_not_fit_are_refused(values: Tensor, kept: Tensor) -> None:
    with pytest.raises(ValueError, match="not a message"):
        decode(forged({"a": [3]}, a_values=values, a_kept=kept))


@pytest.mark.parametrize("parts", [{"a_values": VALUES}, {"a_kept": KEPT}, {"a_values": VALUES, "a_kept": KEPT}])
@pytest.mark.parametrize("claims", [{}, {"b": [3]}])
def test_parts_nobody_announced_are_refused(parts: dict[str, Tensor], claims: object) -> None:
    with pytest.raises(ValueError, match="not a message"):
        decode(forged(claims, **parts))


def test_half_a_sparse_tensor_is_refused() -> None:
    for part in ({"a_values": VALUES}, {"a_kept": KEPT}):
        with pytest.raises(ValueError, match="announced but not there"):
            decode(forged({"a": [3]}, **part))


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 2**64 - 1) + b"{}",
        raw({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}),
        raw({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}}, b"1234"),
        raw({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}}, b"1234"),
        raw({"a": {"dtype": "object", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        raw({"__metadata__": {"sparse": "[" * 100_000}}),
        raw({"__metadata__": {"sparse": "not json"}}),
        raw({"__metadata__": {"sparse": '{"a": [NaN]}'}}),
        raw({"__metadata__": {"sparse": '{"a": [1' + "0" * 5000 + "]}"}}),
        raw([]),
        raw({"a": 1}),
    ],
    ids=range(12),
)
def test_oversized_and_false_headers_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        decode(data)


class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_ever_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    torch.save({"a": Bomb(mark)}, tmp_path / "zip")
    body = pickle.dumps(Bomb(mark))
    wrapped = raw({"a": {"dtype": "U8", "shape": [len(body)], "data_offsets": [0, len(body)]}}, body)
    for data in (body, (tmp_path / "zip").read_bytes()):
        with pytest.raises(ValueError, match="not a message"):
            decode(data)
    inside = decode(wrapped)["a"]  # a pickle as the values of a tensor is just numbers
    assert isinstance(inside, Tensor)
    assert bytes(inside.tolist()) == body
    assert not mark.exists()


def test_decoding_opens_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file is opened")

    for name in ("tempfile.NamedTemporaryFile", "tempfile.mkstemp", "builtins.open", "os.open"):
        monkeypatch.setattr(name, refuse)
    message = decode(SOUND)
    monkeypatch.undo()
    assert set(message) == {"model.w", "train_nodes"}


def entry(shape: list[int], offsets: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("header", "body", "says"),
    [
        ({"a": entry([1], [0, 4]), "b": entry([1], [2, 6])}, b"123456", "overlap or leave a hole"),
        ({"a": entry([1], [0, 4]), "b": entry([1], [0, 4])}, b"1234", "overlap or leave a hole"),
        ({"a": entry([1], [4, 8])}, b"12345678", "overlap or leave a hole"),
        ({"a": entry([1], [0, 4])}, b"12345", "do not end where the data ends"),
        ({"a": entry([1], [0, 4])}, b"123", "do not end where the data ends"),
        ({"a": entry([2], [0, 4])}, b"1234", "do not fit its shape"),
        ({"a": entry([1], [4, 0])}, b"1234", "do not fit its shape"),
        ({"a": entry([1], [0, 1, 4])}, b"1234", "has no offsets"),
        ({"a": entry([1], [-4, 0])}, b"1234", "has no offsets"),
        ({"a": entry([1], [0, 4.0])}, b"1234", "has no offsets"),  # type: ignore[list-item]
        ({"a": entry([True], [0, 4])}, b"1234", "has no shape"),
        ({"a": entry([1] * 17, [0, 4])}, b"1234", "has no shape"),
        ({"a": entry([0, 2**60], [0, 0])}, b"", "has no shape"),
        ({"a": entry([4], [0, 4], "F8_E4M3")}, b"1234", "a dtype that is not sent"),
        ({"a": entry([2], [0, 16], "C64")}, b"1" * 16, "a dtype that is not sent"),
        ({"a": entry([4], [0, 4], "BOOL")}, b"\0\1\2\3", "neither true nor false"),
        ({"a": {**entry([1], [0, 4]), "more": 1}}, b"1234", "or more than these"),
        ({"__metadata__": {"sparse": 1}}, b"", "not a table of texts"),
        ({"__metadata__": []}, b"", "not a table of texts"),
    ],
)
def test_a_false_header_is_named(header: object, body: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode(raw(header, body))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        '{"a": {"dtype": "F32", "dtype": "I32", "shape": [1], "data_offsets": [0, 4]}}',
        '{"__metadata__": {}, "__metadata__": {}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    ],
)
def test_a_name_that_is_there_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a name is there twice"):
        decode(struct.pack("<Q", len(text)) + text.encode() + b"1234")


def test_a_long_header_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.messages.wire._parse_json", lambda text: pytest.fail("it is parsed"))
    with pytest.raises(ValueError, match="its header is too long"):
        decode(struct.pack("<Q", HEADER_LIMIT + 1) + b" " * (HEADER_LIMIT + 1))


sizes = st.one_of(st.integers(-2, 8), st.sampled_from([2**31, 2**47, 2**62, 2**64]), st.none(), st.booleans())
entries = st.one_of(
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "F64", "U8", "BOOL", "BF16", "F4", "", 7]),
            "shape": st.lists(sizes, max_size=3),
            "data_offsets": st.lists(sizes, min_size=1, max_size=3),
        }
    ),
    st.none(),
    st.integers(),
)


@settings(max_examples=300)
@given(header=st.dictionaries(st.text(max_size=4), entries, max_size=3), body=st.binary(max_size=24))
def test_whatever_a_header_says_little_is_allocated(header: dict[str, object], body: bytes) -> None:
    """The result is a message that fits the bytes, or a ValueError; never another error."""
    tracemalloc.start()
    try:
        message = decode(raw(header, body))
    except ValueError:
        message = {}
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 2**20
    assert sum(t.numel() * t.element_size() for t in message.values() if isinstance(t, Tensor)) <= len(body)


@settings(max_examples=100)
@given(length=st.integers(0, 2**64 - 1), rest=st.binary(max_size=64))
def test_whatever_length_a_header_claims(length: int, rest: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        decode(struct.pack("<Q", length) + rest)
