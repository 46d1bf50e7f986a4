"""Certificates and node keys of a rehearsal."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key, load_ssh_public_key

from fedquilt.federation.local.keys import make_certificates, make_node_key


def test_the_servers_certificate_is_signed_by_the_authority(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certificates", "127.0.0.1")
    authority = x509.load_pem_x509_certificate((tmp_path / "certificates/ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((tmp_path / "certificates/server.pem").read_bytes())
    key = load_pem_private_key((tmp_path / "certificates/server.key").read_bytes(), None)
    server.verify_directly_issued_by(authority)
    assert server.public_key() == key.public_key()
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert sorted(path.name for path in (tmp_path / "certificates").iterdir()) == ["ca.crt", "server.key", "server.pem"]


def test_a_node_key_is_for_its_owner_only(tmp_path: Path) -> None:
    public = make_node_key(tmp_path / "keys" / "node-0")
    assert public == tmp_path / "keys" / "node-0.pub"
    private = load_ssh_private_key((tmp_path / "keys" / "node-0").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP384R1)
    assert load_ssh_public_key(public.read_bytes()) == private.public_key()
    assert (tmp_path / "keys" / "node-0").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
