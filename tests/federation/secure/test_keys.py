"""Keys and shares: what t sites know, what fewer know, and what is refused."""

from __future__ import annotations

import itertools
import os

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedquilt.federation.secure.keys import (
    KeyPair,
    SiteKeys,
    agreed_mask_key,
    check_key_table,
    fingerprint,
    is_signed,
    join_shares,
    key_pairs_match,
    open_shares,
    read_public_key,
    seal_shares,
    sign,
    signed,
    split_secret,
    threshold,
)

PURPOSE = bytes(32)


def key_table(count: int = 3) -> dict[int, SiteKeys]:
    return {m: signed(KeyPair.make(), PURPOSE, m, KeyPair.make().public, KeyPair.make().public) for m in range(count)}


def test_the_threshold_is_more_than_half_and_three_or_more() -> None:
    assert [threshold(n) for n in (3, 4, 5, 6, 7, 9, 10, 100)] == [3, 3, 4, 5, 5, 7, 7, 67]
    assert all(2 * threshold(n) > n + 1 for n in range(3, 200))


def test_enough_shares_give_the_secret_back_and_fewer_do_not() -> None:
    sites, secret = [2, 5, 7, 11], os.urandom(32)
    shares = split_secret(secret, sites)
    for some in itertools.combinations(sites, threshold(4)):
        assert join_shares({m: shares[m] for m in some}, sites) == secret
    with pytest.raises(ValueError, match="2 shares came, and 3 are needed"):
        join_shares({m: shares[m] for m in (2, 5)}, sites)


@pytest.mark.parametrize(
    "change",
    [
        lambda share: share[:-1],
        lambda share: b"\2\0\0\0" + share[4:],
        lambda share: b"\0\0\0\0" + share[4:],
        lambda share: share + bytes(16),
        lambda share: bytes(5000),
        lambda share: b"",
    ],
)
def test_shares_that_cannot_be_are_refused(change: object) -> None:
    sites = [0, 1, 2]
    shares = split_secret(os.urandom(32), sites)
    shares[0] = change(shares[0])  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"cannot be one|different lengths"):
        join_shares(shares, sites)


def test_two_sites_agree_on_a_key_and_a_third_does_not() -> None:
    a, b, c = KeyPair.make(), KeyPair.make(), KeyPair.make()
    assert agreed_mask_key(a.private, b.public) == agreed_mask_key(b.private, a.public)
    assert agreed_mask_key(a.private, b.public) != agreed_mask_key(c.private, b.public)
    assert key_pairs_match(a.private, a.public)
    assert not key_pairs_match(a.private, b.public)
    assert not key_pairs_match("nothing", a.public)


def test_what_is_sealed_for_one_is_for_nobody_else() -> None:
    key, terms = b"A" * 43 + b"=", bytes(32)
    sealed = seal_shares(key, terms, 1, 2, b"seed", b"key")
    assert open_shares(key, terms, 1, 2, sealed) == (b"seed", b"key")
    for other_key, other_terms, source, target, text, says in (
        (b"B" * 43 + b"=", terms, 1, 2, sealed, "cannot be decrypted"),
        (key, terms, 1, 2, "nothing", "cannot be decrypted"),
        (key, terms, 1, 2, "ü", "cannot be decrypted"),
        (key, b"x" * 32, 1, 2, sealed, "were told different things"),
        (key, terms, 3, 2, sealed, "is for others"),
        (key, terms, 1, 3, sealed, "is for others"),
    ):
        with pytest.raises(ValueError, match=says):
            open_shares(other_key, other_terms, source, target, text)


def test_only_keys_of_the_curve_are_read() -> None:
    other_curve = public_key_to_bytes(ec.generate_private_key(ec.SECP256R1()).public_key()).decode()
    other_kind = public_key_to_bytes(rsa.generate_private_key(65537, 1024).public_key()).decode()  # type: ignore[arg-type]
    for text in (other_curve, other_kind, "nothing", "", 7, None, "x" * 10**6, KeyPair.make().private):
        with pytest.raises(ValueError, match="public key"):
            read_public_key(text)


def test_a_table_of_signed_keys_passes_and_others_do_not() -> None:
    table = key_table()
    check_key_table(table, PURPOSE)
    with pytest.raises(ValueError, match="not signed for this sum"):
        check_key_table(table, b"x" * 32)
    for change, says in (
        ({1: table[0]}, "there twice"),
        ({1: table[1]._replace(masking=table[1].sealing)}, "there twice"),
        ({1: table[1]._replace(masking=KeyPair.make().public)}, "keys of site 1 are not signed"),
        ({1: table[1]._replace(signature="zz")}, "keys of site 1 are not signed"),
        ({1: table[1]._replace(identity=KeyPair.make().public)}, "keys of site 1 are not signed"),
        ({7: table[1], 1: key_table()[1]}, "keys of site 7 are not signed"),
        ({1: table[1]._replace(sealing="x")}, "cannot be read"),
    ):
        with pytest.raises(ValueError, match=says):
            check_key_table({**table, **change}, PURPOSE)


def test_a_signature_is_of_one_key_and_of_the_same_facts() -> None:
    mine, other = KeyPair.make(), KeyPair.make()
    text = sign(mine, "survivors", [0, 1])
    assert is_signed(mine.public, text, "survivors", [0, 1])
    assert not is_signed(mine.public, text, "survivors", [0, 2])
    assert not is_signed(other.public, text, "survivors", [0, 1])
    assert not is_signed(mine.public, "zz", "survivors", [0, 1])


def test_a_fingerprint_is_that_of_the_key_and_not_of_its_text() -> None:
    public = KeyPair.make().public
    assert fingerprint(public) == fingerprint(public.replace("\n", "\r\n"))
    assert len(fingerprint(public)) == 64
    assert fingerprint(public) != fingerprint(KeyPair.make().public)
