"""A file with one JSON object per line, to which lines are appended. A kill may leave its last line incomplete."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedquilt.common.files import open_to_append, plain, write_all, write_bytes
from fedquilt.common.json_text import MEMORY_PER_BYTE, parse_json
from fedquilt.common.read_limit import read_bounded, read_limit
from fedquilt.errors import FedquiltError


@dataclass
class JsonLines:
    """A JSON-lines file.

    Attributes:
        path: the file; it is made with the first line.
        belongs: whether an object is one that this file holds.
        kind: what such an object is called in an error, such as "a round's record".
        hint: the end of an error about a damaged line.
        compact: write no spaces.
        strict_end: a last line without its newline is incomplete even where it is valid JSON.
    """

    path: Path
    belongs: Callable[[dict[str, Any]], bool]
    kind: str
    hint: str = ""
    compact: bool = False
    strict_end: bool = False
    _end_is_complete: bool = field(default=False, init=False)

    def append(self, *objects: Mapping[str, Any], sync: bool = False) -> None:
        """Append objects in one write; with `sync` they are on the disk on return."""
        self._drop_incomplete_end()
        separators = (",", ":") if self.compact else None
        lines = (json.dumps(plain(o), ensure_ascii=False, allow_nan=False, separators=separators) for o in objects)
        text = "".join(line + "\n" for line in lines)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(self.path) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                write_all(file, text.encode("utf-8"))
                if sync:
                    os.fsync(file.fileno())
            except OSError:  # a full disk takes the beginning of a line
                file.truncate(end)
                raise

    def read(self) -> list[dict[str, Any]]:
        """The objects, oldest first. An incomplete last line is left out; any other damage is an error."""
        return [value for value, _ in self._lines()]

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Delete the lines whose objects are not wanted; the others stay byte for byte."""
        if self.path.exists():
            write_bytes(self.path, b"".join(line + b"\n" for value, line in self._lines() if wanted(value)))

    def _lines(self) -> list[tuple[dict[str, Any], bytes]]:
        """Each object with the bytes of its line."""
        try:
            *lines, end = read_bounded(self.path, read_limit() // MEMORY_PER_BYTE).split(b"\n")
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise FedquiltError(f"{self.path} cannot be read: {error}{self.hint}.") from error
        pairs = [(self._parse(number, line), line) for number, line in enumerate(lines, start=1)]
        if end and not self.strict_end and _is_json(end):
            pairs.append((self._parse(len(lines) + 1, end), end))
        return pairs

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            value = parse_json(line)
        except ValueError as error:
            raise FedquiltError(f"Line {number} of {self.path} is not JSON{self.hint}.") from error
        if not isinstance(value, dict) or not self.belongs(value):
            raise FedquiltError(f"Line {number} of {self.path} is not {self.kind}{self.hint}.")
        return value

    def _drop_incomplete_end(self) -> None:
        """Before the first append, drop an incomplete last line, so that the new line does not continue it."""
        if not self._end_is_complete and self.path.exists():
            complete = b"".join(line + b"\n" for _, line in self._lines())
            if complete != self.path.read_bytes():
                write_bytes(self.path, complete)
        self._end_is_complete = True


def _is_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True
