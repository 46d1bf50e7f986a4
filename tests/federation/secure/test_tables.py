"""Bodies of messages: what is written is read, and nothing else."""

from __future__ import annotations

import pytest

from fedquilt.federation.secure.keys import SiteKeys
from fedquilt.federation.secure.tables import (
    BYTES_PER_SITE,
    SITE_LIMIT,
    join_parts,
    read_key_table,
    read_site_keys,
    read_survivors,
    read_texts,
    split_parts,
    write_survivors,
    write_table,
)

BAD = [b"", b"[]", b"{", b'{"x": "y"}', b'{"-1": "y"}', b'{"01": "y"}', b'{"1": 7}', b"[" * 10**5, b"\xff"]


def test_tables_come_back() -> None:
    keys = {10: SiteKeys("a", "b", "c", "d"), 2: SiteKeys("e", "f", "g", "h")}
    assert read_key_table(write_table(keys)) == keys
    assert list(read_key_table(write_table(keys))) == [2, 10]
    assert read_texts(write_table({3: "x"})) == {3: "x"}
    assert read_survivors(write_survivors({2, 0}, [1])) == ([0, 2], [1])
    assert split_parts(join_parts(b"one", b"two")) == (b"one", b"two")


@pytest.mark.parametrize("data", BAD, ids=lambda data: data[:20].decode(errors="replace"))
def test_other_bytes_are_refused(data: bytes) -> None:
    for read in (read_texts, read_key_table, read_survivors):
        with pytest.raises(ValueError, match=r"cannot be read|names something|holds something"):
            read(data)


def test_a_table_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(ValueError, match="too large"):
        read_texts(b"x" * (SITE_LIMIT * BYTES_PER_SITE + 1))
    with pytest.raises(ValueError, match="cannot be read"):
        read_texts(write_table(dict.fromkeys(range(SITE_LIMIT + 1), "")))


@pytest.mark.parametrize("value", [None, [], ["a", "b", "c"], ["a", "b", "c", 4], "abcd", {"a": 1}])
def test_keys_of_another_form_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="keys cannot be read"):
        read_site_keys(value)


@pytest.mark.parametrize("text", ["{}", '{"alive": [true], "dropped": []}', '{"alive": [-1], "dropped": []}'])
def test_lists_of_sites_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lists of sites cannot be read"):
        read_survivors(text.encode())


@pytest.mark.parametrize("data", [b"", b"short", (2**63).to_bytes(8, "little"), b"\5" + bytes(7) + b"four"])
def test_a_body_that_is_too_short_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="too short"):
        split_parts(data)
