"""A site's relay to a proxy that asks for certificates, with real nginx on both sides."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.local.keys import make_certificates
from fedquilt.federation.local.rehearsal import free_ports
from fedquilt.federation.nginx.proxy import Proxy
from fedquilt.federation.nginx.relay import Relay
from support.nginx import HOST, SuperLinkDouble, needs_nginx, running_nginx, status_of


def own_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate that is its own authority, and its key."""
    files = folder / f"{name}.pem", folder / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-384",
        "-nodes",
        "-days",
        "1",
    ]
    command += [
        "-subj",
        "/CN=site",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-out",
        str(files[0]),
        "-keyout",
        str(files[1]),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return files


@needs_nginx
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_proxy_that_asks_for_certificates_lets_only_the_relay_with_one_through(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    certificate, key, authority = (tmp_path / name for name in ("server.pem", "server.key", "ca.crt"))
    known, other = own_certificate(tmp_path, "known"), own_certificate(tmp_path, "other")
    port, right, wrong = free_ports(3)
    trust = ssl.create_default_context()
    for each in (known, other):
        trust.load_verify_locations(each[0])
    post = httpx.Client(verify=trust).post
    request = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    with SuperLinkDouble(certificate, key) as superlink:
        proxy = Proxy(f"{HOST}:{port}", superlink.port, certificate, key, authority, site_authority=known[0])
        relays = {at: Relay(f"localhost:{port}", at, *own, authority) for at, own in ((right, known), (wrong, other))}
        with running_nginx(tmp_path / "proxy", proxy.config(), port):
            assert status_of(port, authority, request) == 400  # no certificate
            with running_nginx(tmp_path / "wrong", relays[wrong].config(), wrong):
                assert post(f"https://localhost:{wrong}/v1/fleet/pull-messages").status_code == 400
            assert superlink.reached == []
            with running_nginx(tmp_path / "right", relays[right].config(), right):
                assert post(f"https://localhost:{right}/v1/fleet/pull-messages", content=b"body").text == "ok"
                assert post(f"https://localhost:{right}/v1/control/start-run").status_code == 403
        assert [(path, size) for _, path, _, size in superlink.reached] == [("/v1/fleet/pull-messages", 4)]
        # A coordinator that another authority vouches for is not spoken to.
        with running_nginx(tmp_path / "again", proxy.config(), port):
            distrustful = Relay(f"localhost:{port}", right, *known, other[0])
            with running_nginx(tmp_path / "distrustful", distrustful.config(), right):
                assert post(f"https://localhost:{right}/v1/fleet/pull-messages").status_code == 502


def test_what_is_no_coordinator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match=r"no address with a port; write it as in coordinator\.example:8000"):
        Relay("coordinator.example", 8002, tmp_path, tmp_path, tmp_path).config()
    with pytest.raises(FedquiltError, match="name the file with the site's certificate"):
        Relay("coordinator.example:8000", 8002, tmp_path / "x", tmp_path, tmp_path).config()
