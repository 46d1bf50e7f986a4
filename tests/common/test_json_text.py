"""JSON that is damaged or hostile is a ValueError, never anything else, and never slow."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.common.json_text import DEEPEST, parse_json, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text("aé☃"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
)


@given(VALUES)
def test_sound_json_is_read_as_python_does(value: Any) -> None:
    text = json.dumps(value)
    assert parse_json(text) == json.loads(text)
    assert parse_json(text.encode()) == json.loads(text)


def test_nesting_can_be_bounded_further() -> None:
    assert parse_json("[[1]]", deepest=2) == [[1]]
    with pytest.raises(ValueError, match="nested more than 2 levels"):
        parse_json("[[[1]]]", deepest=2)


def test_nan_is_read() -> None:
    assert math.isnan(parse_json("[NaN]")[0])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested|Expecting"),
        ("[" * 100_000 + "]" * 100_000, "nested more than 100"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "nested more than 100"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested more than 100"),
        ("1" + "0" * 400, "more than 64 bits"),
        ("-" + "9" * 1_000_000, "more than 64 bits"),
        (str(2**64), "more than 64 bits"),
        ('["\\ud800"]', "not text"),
        ('{"\\udfff": 1}', "not text"),
        ('["a\\u0000b"]', "NUL"),
        (b"\xff\xfe[\x00]\x00", "utf-8"),
        (b'["\xed\xa0\x80"]', "utf-8"),
        ("", "Expecting"),
    ],
)
def test_the_reason_is_said(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_the_deepest_is_allowed() -> None:
    value = parse_json("[" * DEEPEST + "]" * DEEPEST)
    assert value == parse_json(json.dumps(value))


def test_a_file_is_read_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text('{"a": [1, 2]}')
    assert read_json(tmp_path / "a.json") == {"a": [1, 2]}
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", "100")
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        read_json(tmp_path / "a.json")
