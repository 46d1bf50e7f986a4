"""Keys and shares of secrets: Flower's building blocks, with checks of what comes from outside."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_utils import (
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
    sign_message,
    verify_signature,
)

FEWEST = 3  # sites in a sum: of a sum of two, each of them knows the other's part
PEM_LIMIT = 400  # characters of a public key
SHARE_LIMIT = 1024  # bytes of a share
_INDEX_BYTES, _BLOCK_BYTES = 4, 16  # of a share: its number, and then whole blocks
_DIGEST_BYTES = 32


class SiteKeys(NamedTuple):
    """What a site sends when a sum begins; all of it is text.

    Attributes:
        masking, sealing: its public keys for this sum, by which masks and encryption are agreed on (PEM).
        identity: its lasting public key (PEM).
        signature: of the two other keys and of what they are for, by the lasting key (hexadecimal).
    """

    masking: str
    sealing: str
    identity: str
    signature: str


# By the sites' numbers.
KeyTable = dict[int, SiteKeys]


def threshold(sites: int) -> int:
    """t: how many of n sites have to stay to the end, floor(2 n / 3) + 1.

    It is more than half of them, so that the coordinator never gets t shares of each of a site's two secrets where each other
    site gives one of the two kinds only; and it is at least three where there are three sites.
    """
    return 2 * sites // 3 + 1


@dataclass(frozen=True)
class KeyPair:
    """A key pair as text (PEM)."""

    private: str
    public: str

    @classmethod
    def make(cls) -> KeyPair:
        """A new one, from the system's secure randomness."""
        private, public = generate_key_pairs()
        return cls(private_key_to_bytes(private).decode(), public_key_to_bytes(public).decode())


def read_public_key(text: object) -> ec.EllipticCurvePublicKey:
    """The public key in a text from outside; ValueError where it is none on the curve that all use."""
    if not isinstance(text, str) or len(text) > PEM_LIMIT:
        raise ValueError("a public key cannot be read")
    try:
        key = bytes_to_public_key(text.encode("ascii"))
    except Exception:
        raise ValueError("a public key cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ValueError("a public key is of another kind")
    return key


def fingerprint(public: str) -> str:
    """A public key in 64 hexadecimal digits, by which people tell each other theirs."""
    der = read_public_key(public).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def sign(identity: KeyPair, *facts: object) -> str:
    """The signature of some facts by a site's lasting key, in hexadecimal digits."""
    return sign_message(bytes_to_private_key(identity.private.encode()), digest(*facts)).hex()


def is_signed(identity: str, signature: str, *facts: object) -> bool:
    """Whether a text is the signature of these facts by the owner of a lasting public key."""
    try:
        return verify_signature(read_public_key(identity), digest(*facts), bytes.fromhex(signature))
    except ValueError:
        return False


def signed(identity: KeyPair, purpose: bytes, number: int, masking: str, sealing: str) -> SiteKeys:
    """A site's keys for a sum, signed. `purpose` is a digest of what they are for."""
    signature = sign(identity, "keys", purpose.hex(), number, masking, sealing)
    return SiteKeys(masking, sealing, identity.public, signature)


def check_site_keys(number: int, keys: SiteKeys, purpose: bytes, taken: set[ec.EllipticCurvePublicNumbers]) -> None:
    """ValueError where a site's keys cannot be read, are taken, or were not signed for this purpose; then they are taken."""
    listed = {read_public_key(key).public_numbers() for key in (keys.masking, keys.sealing, keys.identity)}
    if len(listed) != len(SiteKeys._fields) - 1 or listed & taken:
        raise ValueError("a public key is there twice")
    if not is_signed(keys.identity, keys.signature, "keys", purpose.hex(), number, keys.masking, keys.sealing):
        raise ValueError(f"the keys of site {number} are not signed for this sum")
    taken |= listed


def check_key_table(table: KeyTable, purpose: bytes) -> None:
    """ValueError where a key cannot be read, is there twice, or was not signed for this purpose."""
    taken: set[ec.EllipticCurvePublicNumbers] = set()
    for number, keys in table.items():
        check_site_keys(number, keys, purpose, taken)


def agreed_key(private: str, public: str) -> bytes:
    """The key that the owners of two key pairs have in common, as Flower's encryption takes it (base64)."""
    return generate_shared_key(bytes_to_private_key(private.encode()), read_public_key(public))


def agreed_mask_key(private: str, public: str) -> bytes:
    """The same as 32 bytes, for a mask."""
    return base64.urlsafe_b64decode(agreed_key(private, public))


def public_key_of(private: str) -> str:
    """The public key of a private one; ValueError where it is no private key."""
    try:
        return public_key_to_bytes(bytes_to_private_key(private.encode()).public_key()).decode()
    except Exception:
        raise ValueError("a private key cannot be read") from None


def key_pairs_match(private: str, public: str) -> bool:
    """Whether a public key is that of a private one."""
    try:
        found = read_public_key(public_key_of(private))
    except ValueError:
        return False
    return found.public_numbers() == read_public_key(public).public_numbers()


def split_secret(secret: bytes, sites: Sequence[int]) -> dict[int, bytes]:
    """A share of a secret for each site; `threshold` of them give it back."""
    shares = create_shares(secret, threshold(len(sites)), len(sites))
    return dict(zip(sorted(sites), shares, strict=True))


def join_shares(shares: Mapping[int, bytes], sites: Sequence[int]) -> bytes:
    """The secret of which these sites have given their shares; ValueError where they do not fit together.

    Args:
        shares: the shares by the site that gave them.
        sites: all sites for which the secret was split.
    """
    enough = threshold(len(sites))
    if len(shares) < enough:
        raise ValueError(f"{len(shares)} shares came, and {enough} are needed")
    chosen = {site: shares[site] for site in sorted(shares)[:enough]}
    order = sorted(sites)
    for site, share in chosen.items():
        blocks = len(share) - _INDEX_BYTES
        whole = 0 < blocks <= SHARE_LIMIT and blocks % _BLOCK_BYTES == 0
        if not whole or int.from_bytes(share[:_INDEX_BYTES], "little") != order.index(site) + 1:
            raise ValueError(f"the share of site {site} cannot be one")
    if len({len(share) for share in chosen.values()}) != 1:
        raise ValueError("shares of one secret have different lengths")
    return combine_shares(list(chosen.values()))


def digest(*facts: object) -> bytes:
    """SHA-256 of facts that JSON can hold."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).digest()


def seal_shares(key: bytes, terms: bytes, source: int, target: int, seed_share: bytes, key_share: bytes) -> str:
    """The shares of `source` for `target`, encrypted. `terms` is a digest of all that both have to agree on."""
    return encrypt(key, terms + share_keys_plaintext_concat(source, target, seed_share, key_share)).decode()


def open_shares(key: bytes, terms: bytes, source: int, target: int, sealed: str) -> tuple[bytes, bytes]:
    """The share of the seed and that of the private key; ValueError where `source` did not seal them for this."""
    try:
        plain = decrypt(key, sealed.encode("ascii"))
    except (InvalidToken, ValueError, TypeError):
        raise ValueError(f"what site {source} encrypted for site {target} cannot be decrypted") from None
    if plain[:_DIGEST_BYTES] != terms:
        raise ValueError(f"sites {source} and {target} were told different things about the sum")
    found_source, found_target, seed_share, key_share = share_keys_plaintext_separate(plain[_DIGEST_BYTES:])
    if (found_source, found_target) != (source, target):
        raise ValueError(f"what site {source} encrypted for site {target} is for others")
    return seed_share, key_share
