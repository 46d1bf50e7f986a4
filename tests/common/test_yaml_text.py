"""YAML that is wrong or hostile is one error with a reason, in a second or two."""

from __future__ import annotations

import time
from datetime import date
from typing import Any

import pytest

from fedquilt.common.yaml_text import DEEPEST, LARGEST, MOST_VALUES, YamlError, parse_yaml

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: [x, 2.5, true, null]\n", {"a": 1, "b": ["x", 2.5, True, None]}),
        ('{"a": {"b": -3}}', {"a": {"b": -3}}),
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
        ("a: &p {lr: 0.1}\nb: *p\nc: {<<: *p, wd: 0}", {"a": {"lr": 0.1}, "b": {"lr": 0.1}, "c": {"lr": 0.1, "wd": 0}}),
        ("a: 2020-01-02", {"a": date(2020, 1, 2)}),
        ("a: 18446744073709551615", {"a": 2**64 - 1}),
        ("[" * DEEPEST + "]" * DEEPEST, None),
        ("", None),
    ],
)
def test_what_is_sound_is_read(text: str | bytes, value: Any) -> None:
    found = parse_yaml(text)
    assert found == value or value is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, r"stands for more than 20,000 values \(line 5\)"),
        ("a: &a [*a]", r"an alias \*a inside of what it stands for \(line 1\)"),
        ("x0: &x0 [1]\n" + "".join(f"x{i}: &x{i} [*x{i - 1}]\n" for i in range(1, 99)), "nested more than 50"),
        ("[" * 200_000, "nested more than 50 levels deep"),
        ("{a: " * 50_000, "nested more than 50 levels deep"),
        ("- " * 100_000, "nested more than 50 levels deep"),
        ("[" + "1," * MOST_VALUES + "]", "has more than 20,000 values"),
        ("x" * (LARGEST + 1), "is larger than 256 KiB"),
        ("a: 1\nb: 2\na: 3", r"says 'a' twice \(line 3\); keep one of them"),
        ("b: {c: 1, c: 2}", r"says 'c' twice \(line 1\)"),
        ("a: " + "9" * 400, "a whole number of more than 64 bits"),
        ("a: 0x" + "f" * 50_000, "a whole number of more than 64 bits"),
        ("a: -0b1" + "0" * 64, "a whole number of more than 64 bits"),
        ('a: "\\ud800"', "not text"),
        ('"\\0": 1', "NUL"),
        ('a: "\\e[2J"', r"has text with a control character \(\\u001b\)"),
        ("a: \u202eb", "has text with a control character"),
        ("a: [", r"is not valid YAML \(line 1\)"),
        ("a: 2020-13-45", "is not valid YAML"),
        ("a: !!int ''", "is not valid YAML"),
        ("!!python/object/apply:os.system [ls]", "is not valid YAML"),
        ("a: 1\n---\nb: 2", "is not valid YAML"),
        ("a: *nothing", "is not valid YAML"),
        (b"\xff\xfe", "is not valid YAML"),
    ],
)
def test_the_reason_is_said(text: str | bytes, reason: str) -> None:
    began = time.perf_counter()
    with pytest.raises(YamlError, match=reason):
        parse_yaml(text)
    assert time.perf_counter() - began < 20
