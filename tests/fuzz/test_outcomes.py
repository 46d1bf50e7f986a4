"""Outcomes are compared by what they say: times and hashes of times aside, numbers to nine digits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fuzz.outcomes import alike, differences, outcome


def write(folder: Path, **result: object) -> dict:
    """A run folder in short."""
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps({"where": str(folder), **result}))
    (folder / ".lock").write_text("7")
    np.savez(folder / "cut.npz", nodes=np.arange(3))
    return outcome(folder)


def test_times_hashes_and_places_do_not_count(tmp_path: Path) -> None:
    one = write(tmp_path / "one", test=51.35, seconds=1.0, tensors_sha256="a", facts={"x": "0" * 64})
    two = write(tmp_path / "two", test=51.35, seconds=2.0, tensors_sha256="b", facts={"x": "1" * 64})
    assert differences(one, two) == []


def test_a_number_an_array_and_a_file_do(tmp_path: Path) -> None:
    one = write(tmp_path / "one", test=51.35)
    assert differences(one, write(tmp_path / "two", test=91.35)) == ["result.json"]
    np.savez(tmp_path / "two" / "cut.npz", nodes=np.arange(4))
    (tmp_path / "two" / "more.json").write_text("{")
    assert differences(one, outcome(tmp_path / "two")) == ["cut.npz", "more.json", "result.json"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (50.15873064597448, 50.15873064597418, True),
        (50.158, 50.159, False),
        ([1.0, {"a": 2}], [1.0, {"a": 2}], True),
        ([1.0, {"a": 2}], [1.0, {"a": 3}], False),
        ([1.0], [1.0, 1.0], False),
        ({"a": 1}, {"b": 1}, False),
        ("x", "y", False),
        (None, 0, False),
    ],
)
def test_values_are_alike_to_nine_digits(one: object, other: object, same: bool) -> None:
    assert alike(one, other) is same
