"""A header and a blob as Flower's message, and back."""

from __future__ import annotations

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.federation.flower_messages import HEADER_LIMIT, pack, unpack

_TEXT = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
json_values = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(_TEXT, max_size=8)
)


@given(header=st.dictionaries(st.text(_TEXT, max_size=8), json_values, max_size=4), body=st.binary(max_size=64))
def test_what_is_packed_comes_back(header: dict[str, object], body: bytes) -> None:
    assert unpack(pack(header, body)) == (header, body)


def blob(data: bytes) -> Array:
    return Array("uint8", (len(data),), "safetensors", data)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (RecordDict({}), "no header"),
        (RecordDict({"header": ConfigRecord({"json": 7})}), "no header"),
        (RecordDict({"header": ConfigRecord({"json": " " * (HEADER_LIMIT + 1)})}), "too long"),
        (RecordDict({"header": ConfigRecord({"json": "[]"})}), "not a table"),
        (RecordDict({"header": ConfigRecord({"json": "[" * 60_000})}), "Expecting|nested"),
        (RecordDict({"header": ConfigRecord({"json": '{"a":' * 9000 + "1" + "}" * 9000})}), "nested more than"),
        (RecordDict({"header": ConfigRecord({"json": '{"a": 1' + "0" * 400 + "}"})}), "more than 64 bits"),
        (RecordDict({"header": ConfigRecord({"json": "{}"}), "x": ConfigRecord({})}), "records that no message has"),
        (
            RecordDict(
                {"header": ConfigRecord({"json": "{}"}), "body": ArrayRecord({"0": blob(b"x"), "1": blob(b"x")})}
            ),
            "more than one blob",
        ),
    ],
)
def test_other_messages_are_refused(content: RecordDict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        unpack(content)
