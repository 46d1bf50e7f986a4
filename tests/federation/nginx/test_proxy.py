"""The proxy with a real nginx: what reaches the SuperLink behind it, and what does not."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.local.keys import make_certificates
from fedquilt.federation.local.rehearsal import free_ports
from fedquilt.federation.nginx.proxy import FLEET_CALLS, Proxy
from support.nginx import HOST, SuperLinkDouble, needs_nginx, running_nginx, status_of, tls_socket


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


def proxy_to(port: int, superlink_port: int, folder: Path, **more: Any) -> Proxy:
    files = (folder / name for name in ("server.pem", "server.key", "ca.crt"))
    return Proxy(f"{HOST}:{port}", superlink_port, *files, **more)


@pytest.fixture(scope="module")
def behind(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, SuperLinkDouble]]:
    """The proxy's port, and the server behind it."""
    (port,) = free_ports(1)
    with SuperLinkDouble(made / "server.pem", made / "server.key") as superlink:
        config = proxy_to(port, superlink.port, made).config()
        with running_nginx(tmp_path_factory.mktemp("proxy"), config, port):
            yield port, superlink


@needs_nginx
def test_what_supernodes_call_passes(made: Path, behind: tuple[int, SuperLinkDouble]) -> None:
    port, superlink = behind
    superlink.reached.clear()
    said = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "http", "Host": "elsewhere.example", "signature": "x"}
    with httpx.Client(verify=ssl.create_default_context(cafile=str(made / "ca.crt"))) as client:
        for call in FLEET_CALLS:
            answer = client.post(f"https://{HOST}:{port}/v1/fleet/{call}", content=b"x" * 2**16, headers=said)
            assert (answer.status_code, answer.text) == (200, "ok")
    assert [(method, path, size) for method, path, _, size in superlink.reached] == [
        ("POST", f"/v1/fleet/{call}", 2**16) for call in FLEET_CALLS
    ]
    for _, _, headers, _ in superlink.reached:
        assert (headers["host"], headers["x-forwarded-for"], headers["x-forwarded-proto"]) == (
            "localhost",
            HOST,
            "https",
        )
        assert headers["signature"] == "x"


FORBIDDEN = [
    "GET /v1/fleet/pull-messages",
    "PUT /v1/fleet/pull-messages",
    "post /v1/fleet/pull-messages",
    "POST /v1/fleet/register-node",
    "POST /v1/fleet/unregister-node",
    "POST /v1/fleet/",
    "POST /v1/fleet/pull-messages/",
    "POST /v1/fleet/pull-messages?",
    "POST /v1/fleet/pull-messages?x=/v1/control/start-run",
    "POST /v1/fleet/pull-messages%0A",
    "POST /v1/fleet/pull%2Dmessages",
    "POST /v1/fleet/PULL-MESSAGES",
    "POST //v1/fleet/pull-messages",
    "POST /v1/control/start-run",
    "POST /v1/fleet/../control/start-run",
    "POST /v1/fleet/%2e%2e/control/start-run",
    "POST /v1/fleet/..%2fcontrol/start-run",
    "POST /v1/control/../fleet/pull-messages",
    "POST /v1/fleet/pull-messages/../../control/start-run",
    "POST /v1/fleet/pull-messages#/../../control/start-run",
    "POST https://localhost/v1/control/start-run",
    "POST /v1/fleet/pull-messages;/v1/control/start-run",
    "POST /v1/runtime/acquire-task",
    "POST /v1/runtime/responses",
    "GET /health",
    "GET /docs",
    "GET /openapi.json",
    "GET /",
    "OPTIONS *",
    "CONNECT localhost:8001",
    "TRACE /v1/fleet/pull-messages",
]


@needs_nginx
@pytest.mark.parametrize("line", FORBIDDEN)
def test_nothing_else_passes(made: Path, behind: tuple[int, SuperLinkDouble], line: str) -> None:
    port, superlink = behind
    superlink.reached.clear()
    for version in ("1.1", "1.0"):
        request = f"{line} HTTP/{version}\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        assert status_of(port, made / "ca.crt", request.encode()) in (400, 403, 405)
    assert superlink.reached == []


# Requests in which a second one hides: a server behind a proxy that frames them otherwise would carry it out.
SMUGGLED = "POST /v1/control/start-run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
HIDING = [
    f"Content-Length: {len(SMUGGLED)}\r\n\r\n{SMUGGLED}",
    f"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    f"Content-Length: {len(SMUGGLED)}\r\nContent-Length: 0\r\n\r\n{SMUGGLED}",
    f"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{SMUGGLED}",
    f"Transfer-Encoding : chunked\r\nContent-Length: {5 + len(SMUGGLED)}\r\n\r\n0\r\n\r\n{SMUGGLED}",
    f"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 0\r\n\r\n{SMUGGLED}",
    f"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n{SMUGGLED}",
]


@needs_nginx
@pytest.mark.parametrize("rest", HIDING, ids=range(len(HIDING)))
def test_no_request_hides_in_another(made: Path, behind: tuple[int, SuperLinkDouble], rest: str) -> None:
    port, superlink = behind
    superlink.reached.clear()
    with tls_socket(port, made / "ca.crt") as connection:
        connection.sendall(f"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\n{rest}".encode())
        connection.settimeout(0.2)
        answers = b""
        try:
            while data := connection.recv(4096):
                answers += data
        except TimeoutError:
            pass
    assert answers.startswith(b"HTTP/1.1 ")
    assert {path for _, path, _, _ in superlink.reached} <= {"/v1/fleet/pull-messages"}
    assert not any("upgrade" in headers for _, _, headers, _ in superlink.reached)


@needs_nginx
def test_bodies_have_a_limit_and_http2_and_old_tls_are_not_spoken(
    made: Path, behind: tuple[int, SuperLinkDouble]
) -> None:
    port, superlink = behind
    superlink.reached.clear()
    with httpx.Client(verify=ssl.create_default_context(cafile=str(made / "ca.crt"))) as client:
        for size, status in ((6 * 2**20, 200), (9 * 2**20, 413)):
            answer = client.post(f"https://{HOST}:{port}/v1/fleet/push-object", content=bytes(size))
            assert answer.status_code == status
    assert [size for *_, size in superlink.reached] == [6 * 2**20]
    with tls_socket(port, made / "ca.crt", ["h2", "http/1.1"]) as connection:
        assert connection.selected_alpn_protocol() != "h2"
        assert connection.version() == "TLSv1.3"


@needs_nginx
def test_connections_from_one_address_have_a_limit(made: Path, behind: tuple[int, SuperLinkDouble]) -> None:
    port, _ = behind
    head = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    waiting = []
    try:
        for _ in range(64):
            waiting.append(tls_socket(port, made / "ca.crt"))
            waiting[-1].sendall(head)
        until_refused = [status_of(port, made / "ca.crt", head + b"123456789") for _ in range(3)]
    finally:
        for each in waiting:
            each.close()
    assert until_refused[-1] == 503


@needs_nginx
def test_other_addresses_can_be_refused_and_a_superlink_away_is_tried_again(made: Path, tmp_path: Path) -> None:
    port, away = free_ports(2)
    request = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    for number, (addresses, status) in enumerate(((["192.0.2.0/24", "198.51.100.7"], 403), (["127.0.0.0/8"], 502))):
        config = proxy_to(port, away, made, addresses=addresses).config()
        with running_nginx(tmp_path / str(number), config, port):
            assert status_of(port, made / "ca.crt", request) == status


@needs_nginx
def test_a_superlink_that_the_authority_does_not_know_gets_nothing(made: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    make_certificates(tmp_path / "other")
    with SuperLinkDouble(tmp_path / "other" / "server.pem", tmp_path / "other" / "server.key") as other:
        with running_nginx(tmp_path / "proxy", proxy_to(port, other.port, made).config(), port):
            request = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
            assert status_of(port, made / "ca.crt", request) == 502
        assert other.reached == []


def test_one_port_for_both_is_refused(made: Path) -> None:
    with pytest.raises(FedquiltError, match="cannot both have port 8000"):
        proxy_to(8000, 8000, made).config()
    config = proxy_to(8000, 8001, made, site_authority=made / "ca.crt").config()
    assert f'ssl_client_certificate "{made / "ca.crt"}";' in config
    assert "ssl_verify_client on;" in config
    assert "allow" not in config
    assert "@{" not in config
