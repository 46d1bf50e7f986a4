"""Masks: pseudo-random whole numbers modulo 2^64, made from a key of 32 bytes.

They are the key stream of AES-256 in counter mode, as in the paper of Bonawitz et al. Flower's own generator
(`pseudo_rand_gen`) is not used: it folds the key to 32 bits, of which keys as Flower derives them set at most 28, and seeds
NumPy's Mersenne Twister with them, so that all its masks can be tried.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedquilt.federation.secure.fixed_point import WORD_BYTES, Vector

KEY_BYTES = 32


def mask(key: bytes, length: int) -> Vector:
    """[length] the mask of a key. A key makes one mask only, so that the counter may start at zero."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a mask's key has {KEY_BYTES} bytes, not {len(key)}")
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(WORD_BYTES * length)), dtype="<u8").astype(np.uint64, copy=False)


def common_mask(key: bytes, length: int, mine: int, other: int) -> Vector:
    """What the site `mine` adds for the mask it has in common with `other`; the two add up to zero modulo 2^64."""
    found = mask(key, length)
    return found if mine > other else np.zeros_like(found) - found
