"""JSON-lines files: a last line that a kill left incomplete is dropped, other damage is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.common.json_lines import JsonLines
from fedquilt.errors import FedquiltError
from support.limits import largest_file


def numbers(path: Path, strict_end: bool = False, compact: bool = False) -> JsonLines:
    return JsonLines(path, lambda value: "n" in value, "a number's line", "; look at it", compact, strict_end)


def test_what_is_appended_comes_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "numbers.jsonl"
    assert numbers(path).read() == []
    numbers(path).append({"n": 1}, {"n": float("nan")})
    numbers(path, compact=True).append({"n": 3, "é": (1, 2)}, sync=True)
    assert numbers(path).read() == [{"n": 1}, {"n": None}, {"n": 3, "é": [1, 2]}]
    assert path.read_text() == '{"n": 1}\n{"n": null}\n{"n":3,"é":[1,2]}\n'


@pytest.mark.parametrize("strict_end", [True, False])
def test_an_incomplete_end_is_left_out_and_replaced_by_the_next_line(tmp_path: Path, strict_end: bool) -> None:
    path = tmp_path / "numbers.jsonl"
    line = b'{"n": 2}'
    for cut in range(1, len(line) + 1):
        path.write_bytes(b'{"n": 1}\n' + line[:cut])
        complete = cut == len(line) and not strict_end  # only its newline is missing
        expected = [{"n": 1}, {"n": 2}] if complete else [{"n": 1}]
        assert numbers(path, strict_end).read() == expected
        numbers(path, strict_end).append({"n": 3})
        assert numbers(path, strict_end).read() == [*expected, {"n": 3}]


def test_damage_before_the_end_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    for damage, says in (
        ("{", "Line 2 of .* is not JSON; look at it."),
        ('{"m": 1}', "Line 2 of .* is not a number's"),
    ):
        path.write_text(f'{{"n": 1}}\n{damage}\n')
        with pytest.raises(FedquiltError, match=says):
            numbers(path).read()


def test_lines_that_stay_are_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text('{"n":   1}\n{"n": 2}\n{"n": 3}')
    numbers(path).keep(lambda value: value["n"] != 2)
    assert path.read_text() == '{"n":   1}\n{"n": 3}\n'


def test_a_disk_that_fills_up_leaves_no_beginning_of_a_line(tmp_path: Path) -> None:
    lines = numbers(tmp_path / "numbers.jsonl")
    lines.append({"n": 1})
    with largest_file(lines.path.stat().st_size + 4), pytest.raises(OSError, match="too large"):
        lines.append({"n": 2})
    assert lines.path.read_bytes() == b'{"n": 1}\n'
    lines.append({"n": 3})
    assert lines.read() == [{"n": 1}, {"n": 3}]
