"""Text from outside is printed without what a terminal obeys."""

from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.common.printable import fault_of_name, fault_of_text, printable, printable_logger, shown


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain, größe, 数, 👩‍👩‍👧", "plain, größe, 数, 👩‍👩‍👧"),
        ("\x1b[2J\x1b]0;title\x07", r"\u001b[2J\u001b]0;title\u0007"),
        ("a\rb\x08\x7f", r"a\u000db\u0008\u007f"),
        ("\x9b31m", r"\u009b31m"),  # C1: one character that begins a command
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("\u2066\u2069\u200f\u200b\ufeff", r"\u2066\u2069\u200f\u200b\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\udb40\udc41"),
    ],
)
def test_what_a_terminal_obeys_is_escaped(text: str, escaped: str) -> None:
    assert printable(text) == printable(text, lines=True) == escaped


def test_line_feeds_stay_where_lines_are_expected() -> None:
    assert printable("a\n\tb") == r"a\u000a\u0009b"
    assert printable("a\n\tb", lines=True) == "a\n\tb"


@given(st.text(st.characters()))
def test_json_stays_the_same_json(text: str) -> None:
    assert json.loads(printable(json.dumps([text], ensure_ascii=False))) == [text]


@given(st.text(st.characters()))
def test_what_is_printable_can_be_written_and_stays(text: str) -> None:
    once = printable(text)
    once.encode("utf-8")  # raises nothing
    assert printable(once) == once
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in once)


def test_a_wrong_value_is_shown_short() -> None:
    assert shown("two") == "'two'"
    assert shown("\x1b[2J") == r"'\x1b[2J'"
    assert len(shown("x" * 5000)) < 90
    assert len(shown([["x" * 5000] * 50] * 50)) < 4000
    assert "thousands of digits" in shown(10**5000)


@pytest.mark.parametrize(("text", "fault"), [("a", None), ("a\0", "NUL"), ("\udcff", "not text"), ("\x1b", None)])
def test_text_that_is_no_name(text: str, fault: str | None) -> None:
    found = fault_of_text(text)
    assert found is None if fault is None else fault in (found or "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("größe, 数 👩‍👧\n\t", None),
        ("a\x1b[2J", r"a control character (\u001b)"),
        ("\x9b", r"a control character (\u009b)"),
        ("\u202ea", r"a control character (\u202e)"),
        ("\0", "a NUL character"),
    ],
)
def test_names_have_no_control_characters(text: str, fault: str | None) -> None:
    assert fault_of_name(text) == fault


def test_a_log_cannot_be_forged() -> None:
    out, logger = io.StringIO(), printable_logger("fedquilt.test-of-printable")
    assert printable_logger("fedquilt.test-of-printable") is logger
    assert len(logger.filters) == 1
    handler = logging.StreamHandler(out)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.warning("Site %s left.", "a\nfedquilt: all is well\x1b[2J")
        raise ValueError("\x1b]0;owned\x07")
    except ValueError:
        logger.exception("It failed.")
    finally:
        logger.removeHandler(handler)
    lines = out.getvalue().splitlines()
    assert lines[:2] == [r"Site a\u000afedquilt: all is well\u001b[2J left.", "It failed."]
    assert lines[-1] == r"ValueError: \u001b]0;owned\u0007"


@pytest.mark.parametrize("name", ["flwr", "fedquilt.site"])
def test_what_a_federation_logs_is_printable(name: str, caplog: pytest.LogCaptureFixture) -> None:
    import fedquilt.federation  # noqa: F401

    logger = logging.getLogger(name)
    logger.addHandler(caplog.handler)
    try:
        logger.error("%s", "a\x1b[2J\nforged")
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.records[0].getMessage() == r"a\u001b[2J\u000aforged"
