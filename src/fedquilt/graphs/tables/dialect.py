"""Find out how a csv file is written: its encoding and what separates its columns."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables.options import TableOptions

LONGEST_LINE = 2**26  # characters
_BLOCK = 2**20  # bytes that are looked at together
_SAMPLE = 2**16  # characters from which the separator is guessed
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_IN_WORDS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@dataclass(frozen=True)
class Dialect:
    """How a csv file is written.

    Attributes:
        encoding: a name that Python knows, such as utf-8-sig, which is UTF-8 with or without a mark at its beginning.
        separator: the character between two columns.
    """

    encoding: str
    separator: str

    @property
    def in_words(self) -> str:
        """For people, such as "semicolons, Windows-1252 (Latin-1)"."""
        name = {"utf-8-sig": "UTF-8", "utf-16": "UTF-16"}.get(self.encoding, "Windows-1252 (Latin-1)")
        return f"{_IN_WORDS[self.separator]}, {name}"


def find_dialect(path: Path, options: TableOptions) -> Dialect:
    """How a file is written, as the options say or else as it looks. All of it is decoded once; what is no text is refused.

    UTF-8 is tried before Windows-1252: text in the latter with a letter outside of ASCII is almost never valid UTF-8.
    """
    chosen = {"utf-8": "utf-8-sig", "latin-1": "cp1252"}.get(options.encoding or "", options.encoding)
    tried = [chosen] if chosen else _encodings(path)
    for encoding in tried:
        try:
            sample = _check_text(path, encoding)
        except UnicodeError:
            continue
        separator = "\t" if options.separator == "tab" else options.separator
        return Dialect(encoding, separator or _separator(sample))
    said = f"text in {options.encoding}" if options.encoding else "text in UTF-8, UTF-16 or Latin-1"
    raise FedquiltError(f"{path} is not {said}; save it as csv in UTF-8.")


def _encodings(path: Path) -> list[str]:
    with open(path, "rb") as file:
        start = file.read(4)
    return [name for mark, name in _MARKS if start.startswith(mark)] or ["utf-8-sig", "cp1252"]


def _check_text(path: Path, encoding: str) -> str:
    """The beginning of a file that is text in this encoding to its end; UnicodeError where it is not."""
    sample, since_end = "", 0
    for text in _decoded(path, encoding):
        if "\0" in text:
            raise FedquiltError(f"{path} has NUL characters, which no table has; save it as csv in UTF-8.")
        if len(sample) < _SAMPLE:
            sample += text[: _SAMPLE - len(sample)]
        # A line that would fill the memory is no line.
        first = min((at for at in (text.find("\n"), text.find("\r")) if at >= 0), default=-1)
        if since_end + (len(text) if first < 0 else first) >= LONGEST_LINE:
            raise FedquiltError(f"{path} has a line of more than {LONGEST_LINE:,} characters; check how its lines end.")
        last = max(text.rfind("\n"), text.rfind("\r"))
        since_end = since_end + len(text) if last < 0 else len(text) - last - 1
    return sample


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    with open(path, "rb") as file:
        while block := file.read(min(_BLOCK, LONGEST_LINE)):
            yield decoder.decode(block)
        yield decoder.decode(b"", final=True)


def _separator(sample: str) -> str:
    """The separator under which most lines have as many columns as the first one; of several, the one with the most columns."""
    lines = sample.splitlines()
    lines = lines[:-1] if len(sample) == _SAMPLE and len(lines) > 1 else lines
    best, found = (0.0, 1), ","
    for separator in _SEPARATORS:
        widths = _widths(lines[:100], separator)
        if len(widths) and widths[0] > 1:
            score = (sum(width == widths[0] for width in widths) / len(widths), widths[0])
            if score > best:
                best, found = score, separator
    return found


def _widths(lines: list[str], separator: str) -> list[int]:
    try:
        return [len(cells) for cells in csv.reader(lines, delimiter=separator) if cells]
    except csv.Error:
        return []
