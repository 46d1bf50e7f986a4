"""Masks: they cancel, depend on every bit of the key, and look like random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.federation.secure.masks import common_mask, mask

KEY = bytes(range(32))


def test_a_mask_is_the_key_stream_of_aes() -> None:
    """AES-256 of a block of zeros under a key of zeros (FIPS 197, checked elsewhere): dc95c078 a2408989 ad48a214 92842087."""
    assert mask(bytes(32), 2).tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_the_two_sides_of_a_common_mask_cancel() -> None:
    assert not (common_mask(KEY, 9, 1, 4) + common_mask(KEY, 9, 4, 1)).any()
    assert common_mask(KEY, 9, 4, 1).any()


def test_every_bit_of_the_key_counts() -> None:
    """Keys of which Flower's generator, that folds a key to 32 bits, would make one and the same mask."""
    folded = KEY[4:8] + KEY[:4] + KEY[8:]
    assert not np.array_equal(mask(KEY, 4), mask(folded, 4))
    seen = {mask((int.from_bytes(KEY, "big") ^ 1 << bit).to_bytes(32, "big"), 1)[0] for bit in range(256)}
    assert len(seen) == 256


def test_bytes_of_a_mask_are_uniform() -> None:
    counts = np.bincount(np.frombuffer(mask(KEY, 2**16).tobytes(), np.uint8), minlength=256)
    expected = counts.sum() / 256
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 255 + 5 * (2 * 255) ** 0.5


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        mask(b"short", 4)
