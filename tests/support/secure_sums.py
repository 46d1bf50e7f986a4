"""Secure aggregation without messages: some sites on disk, and a coordinator that is a few lines."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from fedquilt.federation.secure.fixed_point import Vector
from fedquilt.federation.secure.keys import KeyPair, KeyTable
from fedquilt.federation.secure.opening import MaskedSum
from fedquilt.federation.secure.participant import Participant

RUN, RANGE = "0123456789abcdef", 64.0
LENGTH = 50


class Group:
    """n sites that add up one vector each.

    Attributes:
        sites: the participants; vectors: [n, LENGTH] what each adds.
    """

    def __init__(self, folder: Path, sites: int, length: int = LENGTH) -> None:
        self.folder = folder
        self.identities = [KeyPair.make() for _ in range(sites)]
        self.sites = [self.site(m) for m in range(sites)]
        rng = np.random.default_rng(0)
        self.vectors = rng.integers(-(2**30), 2**30, (sites, length)).view(np.uint64)

    def site(self, m: int, peers: Collection[str] | None = None) -> Participant:
        """A site as it is after a restart: what it knows is on its disk."""
        folder = self.folder / f"site-{m}"
        folder.mkdir(exist_ok=True)
        return Participant(folder, RUN, m, len(self.identities), self.identities[m], peers)

    def keys(self, sum_id: str, round: int = 0) -> KeyTable:
        """Stage 1: everyone's public keys."""
        return {m: site.setup(sum_id, round, RANGE) for m, site in enumerate(self.sites)}

    def masked(self, sum_id: str, round: int = 0, without: Sequence[int] = ()) -> tuple[KeyTable, dict[int, Vector]]:
        """Stages 1 to 3: the keys, and the masked vectors of all but some who drop out before they send theirs."""
        keys = self.keys(sum_id, round)
        sealed = {m: self.sites[m].share(sum_id, keys) for m in keys}
        out = {}
        for m, site in enumerate(self.sites):
            site.accept(sum_id, round, RANGE, {other: sealed[other][m] for other in keys if other != m})
            if m not in without:
                out[m] = site.masked(sum_id, self.vectors[m])
        return keys, out

    def opened(self, sum_id: str, keys: KeyTable, masked: dict[int, Vector], silent: Sequence[int] = ()) -> Vector:
        """Stage 4: the sum of the vectors that came; some sites may be `silent`."""
        alive = sorted(masked)
        total = sum_of(list(masked.values()))
        whole = MaskedSum(sum_id, 0, keys, sorted(keys), alive, total)
        signatures = {m: self.sites[m].confirm(sum_id, alive, whole.dropped) for m in alive if m not in silent}
        shares = {
            m: {t: bytes.fromhex(s) for t, s in self.sites[m].unmask(sum_id, signatures).items()} for m in signatures
        }
        return whole.opened(shares)


def sum_of(vectors: Sequence[Vector]) -> Vector:
    """The sum modulo 2^64."""
    return np.add.reduce(np.stack(vectors), axis=0, dtype=np.uint64)
