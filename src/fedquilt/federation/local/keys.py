"""Certificates and node keys for one rehearsal, as `openssl` and `ssh-keygen -t ecdsa -b 384` would make them."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

DAYS = 2


def make_certificates(folder: Path, host: str = "127.0.0.1") -> None:
    """Write ca.crt, server.pem and server.key for `host` to `folder`. The authority's own key is not written."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    name, subject = (_name(text) for text in ("fedquilt rehearsal", host))
    only_sign = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    signed = _signed(name, name, authority, authority, [(x509.BasicConstraints(True, 0), True), (only_sign, True)])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(host))])
    use = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    end = [(x509.BasicConstraints(False, None), True), (names, False), (use, False)]
    of_server = _signed(subject, name, server, authority, end)
    _write(folder / "ca.crt", signed.public_bytes(Encoding.PEM))
    _write(folder / "server.pem", of_server.public_bytes(Encoding.PEM))
    _write(folder / "server.key", server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def make_node_key(path: Path) -> Path:
    """Write a private key to `path` and its public key, which is registered, to `path`.pub; returns the latter."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = path.with_name(path.name + ".pub")
    _write(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return public


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
    extensions: list[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(hours=1),
        not_valid_after=now + timedelta(days=DAYS),
    )
    marks = [
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), False),
    ]
    for extension, critical in [*extensions, *marks]:
        made = made.add_extension(extension, critical)
    return made.sign(by, hashes.SHA384())


def _write(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
