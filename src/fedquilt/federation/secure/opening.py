"""The coordinator's part: it checks what sites send, and takes the masks off the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedquilt.federation.secure.fixed_point import WORD_BYTES, Vector
from fedquilt.federation.secure.keys import KeyTable, agreed_mask_key, join_shares, key_pairs_match, threshold
from fedquilt.federation.secure.masks import KEY_BYTES, common_mask, mask
from fedquilt.federation.secure.tables import read_texts


@dataclass(frozen=True, eq=False)
class MaskedSum:
    """The sum of masked uploads, from which masks are still to be taken off.

    Attributes:
        sum_id: the sum's random name; round: its round.
        keys: the public keys of the sites among which secrets are shared.
        members: the sites that masked their uploads against each other.
        alive: those of them whose masked upload came.
        total: [P] the sum of these.
    """

    sum_id: str
    round: int
    keys: KeyTable
    members: list[int]
    alive: list[int]
    total: Vector

    @property
    def dropped(self) -> list[int]:
        """The members whose masked upload did not come."""
        return sorted(set(self.members) - set(self.alive))

    @property
    def needed(self) -> int:
        """How many sites have to give their shares."""
        return threshold(len(self.keys))

    def opened(self, shares: Mapping[int, Mapping[int, bytes]]) -> Vector:
        """[P] the sum without masks, from the shares that each site gave; ValueError where they do not fit together."""
        group, length, out = list(self.keys), len(self.total), self.total.copy()
        for m in self.alive:
            seed = join_shares({giver: given[m] for giver, given in shares.items()}, group)
            if len(seed) != KEY_BYTES:
                raise ValueError(f"the shares of site {m}'s seed do not fit together")
            out -= mask(seed, length)
        for m in self.dropped:
            private = join_shares({giver: given[m] for giver, given in shares.items()}, group).decode(
                "ascii", "replace"
            )
            if not key_pairs_match(private, self.keys[m].masking):
                raise ValueError(f"the shares of site {m}'s key do not fit together")
            for other in self.alive:
                out -= common_mask(agreed_mask_key(private, self.keys[other].masking), length, other, m)
        return out


def read_masked(data: bytes, length: int) -> Vector:
    """[length] a masked upload; ValueError where it has another length."""
    if len(data) != WORD_BYTES * length:
        raise ValueError(f"has {len(data):,} bytes, where a masked upload has {WORD_BYTES * length:,}")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def read_sealed(data: bytes, source: int, members: Sequence[int]) -> dict[int, str]:
    """The shares that a site encrypted for each of the others; ValueError on anything else."""
    sealed = read_texts(data)
    if set(sealed) != set(members) - {source}:
        raise ValueError("has shares for other sites than those of the sum")
    return sealed


def read_shares(data: bytes, members: Sequence[int]) -> dict[int, bytes]:
    """The share that a site gave of each member's secret; ValueError on anything else."""
    texts = read_texts(data)
    if set(texts) != set(members):
        raise ValueError("has shares of other sites than those of the sum")
    return {m: bytes.fromhex(text) for m, text in texts.items()}
