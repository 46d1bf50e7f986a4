"""A site's part in secure aggregation: one sum at a time, each stage once, with what it has to remember on its own disk.

Asked for a stage again with the same words (a reply was lost, the coordinator was restarted), the site gives the same answer.
It refuses everything by which a coordinator could learn more than one sum a round:

- shares of both secrets of one site,
- a sum over fewer sites than the threshold, or one that it has no part in,
- a list of survivors that not so many sites have signed as well,
- a second list, or a second sum, of a round: the difference of two sums is what is in one and not in the other,
- the same masks on another upload or with other sites: the difference of the two is not masked.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedquilt.common.files import write_json
from fedquilt.errors import FedquiltError
from fedquilt.federation.protocol import RefusedError
from fedquilt.federation.secure.fixed_point import Vector
from fedquilt.federation.secure.keys import (
    FEWEST,
    KeyPair,
    KeyTable,
    SiteKeys,
    agreed_key,
    agreed_mask_key,
    check_key_table,
    digest,
    fingerprint,
    is_signed,
    open_shares,
    seal_shares,
    sign,
    signed,
    split_secret,
    threshold,
)
from fedquilt.federation.secure.masks import KEY_BYTES, common_mask, mask

FILE = "secure.json"
OUT_OF_TURN = "This stage of secure aggregation was asked for out of turn, or for a sum that is over."


def sum_purpose(run: str, sum_id: str, round: int, range: float) -> bytes:
    """A digest of what a sum's keys are for."""
    return digest(run, sum_id, round, range)


def is_survivors_signature(keys: SiteKeys, signature: str, terms: str, alive: Sequence[int]) -> bool:
    """Whether a site signed that these are in the sum with these terms (`sum_terms`, in hexadecimal digits)."""
    return is_signed(keys.identity, signature, "survivors", terms, list(alive))


def sum_terms(purpose: bytes, table: KeyTable) -> bytes:
    """A digest of what all sites of a sum have to agree on before they mask anything."""
    return digest(purpose.hex(), sorted(table.items()))


class Participant:
    """A site in the sums of one run.

    Args:
        folder: the run's folder in the site's state folder; the file with the secrets of the sum under way is there.
        run: the run's name.
        number: the site's number.
        sites: how many sites the run has.
        identity: the site's lasting key.
        peers: the fingerprints of the lasting keys of the sites that this one adds up with; None: of any.
    """

    def __init__(
        self, folder: Path, run: str, number: int, sites: int, identity: KeyPair, peers: Collection[str] | None = None
    ) -> None:
        self.path, self.run, self.number, self.sites = folder / FILE, run, number, sites
        self.identity, self.peers = identity, peers
        self._accepted: dict[str, Any] = {}  # the sum under way, with the others' shares

    def setup(self, sum_id: str, round: int, range: float) -> SiteKeys:
        """Begin a sum: forget the one before, and make keys for this one."""
        saved = self._load()
        if saved.get("sum") != sum_id:
            if saved.get("closed", -1) >= round:
                raise RefusedError(f"This site has signed who is in the sum of round {saved['closed']} already.")
            masking, sealing = KeyPair.make(), KeyPair.make()
            purpose = sum_purpose(self.run, sum_id, round, range)
            public = signed(self.identity, purpose, self.number, masking.public, sealing.public)
            keys = {"private": [masking.private, sealing.private], "public": public}
            saved = {"closed": saved.get("closed", -1), "sum": sum_id, "round": round, "range": range, **keys}
            self._save(saved)
        elif (saved["round"], saved["range"]) != (round, range):
            raise RefusedError("The sum was begun for another round or range.")
        return SiteKeys(*saved["public"])

    def share(self, sum_id: str, table: KeyTable) -> dict[int, str]:
        """The shares of this site's secrets, encrypted, by the number of the site that each is for."""
        saved = self._under_way(sum_id, "private")
        purpose = sum_purpose(self.run, sum_id, saved["round"], saved["range"])
        terms = sum_terms(purpose, table)
        if "sealed" in saved:
            if saved["terms"] != terms.hex():
                raise RefusedError("The keys of this sum were other ones before.")
            return {int(m): text for m, text in saved["sealed"].items()}
        self._check_table(table, SiteKeys(*saved["public"]), purpose)
        seed = os.urandom(KEY_BYTES)
        members = sorted(table)
        seed_shares = split_secret(seed, members)
        key_shares = split_secret(saved["private"][0].encode(), members)
        sealed = {
            m: seal_shares(
                agreed_key(saved["private"][1], table[m].sealing), terms, self.number, m, seed_shares[m], key_shares[m]
            )
            for m in members
            if m != self.number
        }
        own = [seed_shares[self.number].hex(), key_shares[self.number].hex()]
        shared = {"terms": terms.hex(), "seed": seed.hex(), "keys": table, "sealed": sealed}
        self._save({**saved, **shared, "shares": {str(self.number): own}})
        return sealed

    def accept(self, sum_id: str, round: int, range: float, sealed: Mapping[int, str]) -> None:
        """Take the shares that the others encrypted for this site, before it trains.

        They are those whose masks its upload gets. They are on the disk once the upload is masked.
        """
        saved = self._under_way(sum_id, "private", "sealed")
        if (saved["round"], saved["range"]) != (round, range):
            raise RefusedError("The sum was begun for another round or range.")
        members = sorted({*sealed, self.number})
        if "members" in saved:
            if saved["members"] != members:
                raise RefusedError("The sites of this sum were other ones before.")
            self._accepted = saved
            return
        if self.number in sealed or not {str(m) for m in sealed} < set(saved["keys"]):
            raise RefusedError("Shares came from a site that is not in this sum.")
        self._check_enough(members, len(saved["keys"]), "would share keys")
        shares = dict(saved["shares"])
        for m, text in sealed.items():
            key = agreed_key(saved["private"][1], _site_keys(saved, m).sealing)
            try:
                found = open_shares(key, bytes.fromhex(saved["terms"]), m, self.number, text)
            except ValueError as error:
                raise RefusedError(f"Secure aggregation: {error}.") from None
            shares[str(m)] = [share.hex() for share in found]
        self._accepted = {**saved, "shares": shares, "members": members}

    def masked(self, sum_id: str, vector: Vector) -> Vector:
        """The upload under the seed's mask and the masks in common with the others."""
        saved, self._accepted = self._accepted, {}
        if saved.get("sum") != sum_id:
            raise RefusedError(OUT_OF_TURN)
        upload = hashlib.sha256(vector.tobytes()).hexdigest()
        if saved.setdefault("upload", upload) != upload:
            raise RefusedError("Another upload was masked for this sum before.")
        self._save(saved)
        out = vector + mask(bytes.fromhex(saved["seed"]), len(vector))
        for m in saved["members"]:
            if m != self.number:
                key = agreed_mask_key(saved["private"][0], _site_keys(saved, m).masking)
                out += common_mask(key, len(vector), self.number, m)
        return out

    def confirm(self, sum_id: str, alive: Sequence[int], dropped: Sequence[int]) -> str:
        """A signature of who is in the sum. From then on no other list and no other sum of this round is signed."""
        saved = self._under_way(sum_id, "upload")
        listed = [sorted(alive), sorted(dropped)]
        if saved.get("listed", listed) != listed:
            raise RefusedError("Others were said to be in this sum before.")
        if len({*alive, *dropped}) != len(alive) + len(dropped):
            raise RefusedError(
                "Both secrets of a site would be asked for, which would unmask its upload; nothing is given."
            )
        if {*alive, *dropped} != set(saved["members"]) or self.number not in alive:
            raise RefusedError("The sum to unmask is not the one that this site has a part in.")
        self._check_enough(alive, len(saved["keys"]), "would be added up")
        self._save({**saved, "listed": listed, "closed": saved["round"]})
        return sign(self.identity, "survivors", saved["terms"], listed[0])

    def unmask(self, sum_id: str, signatures: Mapping[int, str]) -> dict[int, str]:
        """The share of the seed of each site in the sum, and of the private key of each that dropped out.

        Only where as many sites as have to stay have signed the same list as this one. The site's own secrets are forgotten.
        """
        saved = self._under_way(sum_id, "listed")
        alive, dropped = saved["listed"]
        genuine = [
            m
            for m, signature in signatures.items()
            if m in alive and is_survivors_signature(_site_keys(saved, m), signature, saved["terms"], alive)
        ]
        self._check_enough(genuine, len(saved["keys"]), "signed the same list")
        shares = saved["shares"]
        self._save({name: value for name, value in saved.items() if name not in ("private", "seed", "sealed")})
        return {m: shares[str(m)][0] for m in alive} | {m: shares[str(m)][1] for m in dropped}

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check_table(self, table: KeyTable, own: SiteKeys, purpose: bytes) -> None:
        if len(table) < FEWEST:
            raise RefusedError(f"A sum needs at least {FEWEST} sites, and {len(table)} would take part.")
        if max(table) >= self.sites or table.get(self.number) != own:
            raise RefusedError("The table of keys is not one of this run's sites with this site's own keys in it.")
        try:
            check_key_table(table, purpose)
        except ValueError as error:
            raise RefusedError(f"Secure aggregation: {error}.") from None
        if self.peers is None:
            return
        for m, keys in table.items():
            if m != self.number and fingerprint(keys.identity) not in self.peers:
                raise RefusedError(f"Site {m} has a key that is not among this site's secure_peers.")

    def _check_enough(self, found: Sequence[int], group: int, what: str) -> None:
        if len(found) < threshold(group):
            raise RefusedError(
                f"Only {len(found)} of {group} sites {what}, and {threshold(group)} are needed so that nobody stands out."
            )

    def _under_way(self, sum_id: str, *known: str) -> dict[str, Any]:
        """What is saved of a sum, where it has come so far that these are `known`."""
        saved = self._load()
        if saved.get("sum") != sum_id or not set(known) <= set(saved):
            raise RefusedError(OUT_OF_TURN)
        return saved

    # -- what is on the disk ------------------------------------------------------------------------------------------

    def _load(self) -> dict[str, Any]:
        try:
            saved = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            saved = None
        if not isinstance(saved, dict):
            raise FedquiltError(
                f"{self.path}, where this site notes what it masked, is damaged: nothing is sent in this run."
            )
        return saved

    def _save(self, values: Mapping[str, Any]) -> None:
        write_json(self.path, values)


def _site_keys(saved: Mapping[str, Any], m: int) -> SiteKeys:
    """A site's keys in what is saved of a sum."""
    return SiteKeys(*saved["keys"][str(m)])
