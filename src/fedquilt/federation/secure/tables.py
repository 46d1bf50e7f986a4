"""The bodies of secure aggregation's messages: JSON tables by the sites' numbers, read with checks."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from fedquilt.federation.secure.keys import KeyTable, SiteKeys

SITE_LIMIT = 1000  # the most sites in one sum
BYTES_PER_SITE = 4096  # the most that a table needs for a site
_LENGTH = struct.Struct("<Q")


def write_table(table: Mapping[int, Any]) -> bytes:
    """A table by numbers of sites, as bytes."""
    return json.dumps({str(m): value for m, value in table.items()}, separators=(",", ":")).encode()


def read_texts(data: bytes) -> dict[int, str]:
    """The table of one text a site; ValueError on anything else."""
    table = _read(data)
    if not all(isinstance(text, str) for text in table.values()):
        raise ValueError("a table holds something else than texts")
    return table


def read_key_table(data: bytes) -> KeyTable:
    """The table of each site's keys; ValueError on anything else. The keys themselves are not checked."""
    return {m: read_site_keys(keys) for m, keys in _read(data).items()}


def read_site_keys(value: object) -> SiteKeys:
    """One site's keys, as a list of texts; ValueError on anything else."""
    fields = len(SiteKeys._fields)
    if not isinstance(value, list) or len(value) != fields or not all(isinstance(text, str) for text in value):
        raise ValueError("its keys cannot be read")
    return SiteKeys(*value)


def write_survivors(alive: Iterable[int], dropped: Iterable[int]) -> bytes:
    """Whose masked uploads came, and whose did not."""
    return json.dumps({"alive": sorted(alive), "dropped": sorted(dropped)}).encode()


def read_survivors(data: bytes) -> tuple[list[int], list[int]]:
    """The same as it was written; ValueError on anything else."""
    table = _parse(data)
    lists = [table.get("alive"), table.get("dropped")]
    if len(table) != 2 or not all(isinstance(each, list) and all(map(_is_number, each)) for each in lists):
        raise ValueError("the lists of sites cannot be read")
    alive, dropped = lists
    return alive or [], dropped or []


def join_parts(first: bytes, second: bytes) -> bytes:
    """Two parts as one body."""
    return _LENGTH.pack(len(first)) + first + second


def split_parts(data: bytes) -> tuple[bytes, bytes]:
    """The two parts of a body; ValueError on anything else."""
    if len(data) < _LENGTH.size:
        raise ValueError("a body is too short")
    (length,) = _LENGTH.unpack_from(data)
    if length > len(data) - _LENGTH.size:
        raise ValueError("a body is too short")
    return data[_LENGTH.size : _LENGTH.size + length], data[_LENGTH.size + length :]


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > SITE_LIMIT * BYTES_PER_SITE:
        raise ValueError("a table is too large")
    try:
        table = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("a table cannot be read") from None
    if not isinstance(table, dict) or len(table) > SITE_LIMIT:
        raise ValueError("a table cannot be read")
    return table


def _read(data: bytes) -> dict[int, Any]:
    table = _parse(data)
    if not all(name.isascii() and name.isdigit() and len(name) < 6 and str(int(name)) == name for name in table):
        raise ValueError("a table names something that is no site")
    return {int(name): value for name, value in sorted(table.items(), key=lambda item: int(item[0]))}


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 10**5
