"""Parse JSON that may be damaged or hostile: nesting, numbers and text are bounded. Everything wrong is a ValueError."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedquilt.common.printable import fault_of_text
from fedquilt.common.read_limit import read_bounded, read_limit

DEEPEST = 100  # levels of nesting
WIDEST = 2**64  # whole numbers are smaller
MEMORY_PER_BYTE = 24  # of text, at most: `[],` is an empty list and a reference to it


def parse_json(text: str | bytes, deepest: int = DEEPEST) -> Any:
    """The value that `text` is the JSON of.

    ValueError, with the reason, on nesting of more than `deepest` levels, a whole number of more than 64 bits, NUL, lone
    surrogates, and whatever is no JSON. NaN and infinities are read as Python writes them.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        value = json.loads(text, parse_int=_whole)
    except RecursionError:
        raise ValueError(f"it is nested more than {deepest} levels deep") from None
    # Both checks walk through the whole value, so they are made only where they can fail.
    if text.count("[") + text.count("{") > deepest:
        _check_depth(value, deepest)
    if "\\u" in text or fault_of_text(text):
        _check_text(value)
    return value


def read_json(path: Path) -> Any:
    """The value in a JSON file; ValueError as `parse_json`, or where it could take more memory than may be read."""
    return parse_json(read_bounded(path, read_limit() // MEMORY_PER_BYTE))


def _whole(digits: str) -> int:
    # Long ones are not converted at all: that takes time quadratic in their length.
    if len(digits) > 21 or not -WIDEST < (value := int(digits)) < WIDEST:
        raise ValueError("it has a whole number of more than 64 bits")
    return value


def _check_depth(value: Any, deepest: int) -> None:
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > deepest:
            raise ValueError(f"it is nested more than {deepest} levels deep")
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]


def _check_text(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and (fault := fault_of_text(item)):
            raise ValueError(f"it has text with {fault}")
