"""The reverse proxy in front of the SuperLink: it lets through what SuperNodes call, and nothing else.

Flower 1.41 serves three interfaces on one port, as protobuf messages over HTTP: Fleet for SuperNodes, which authenticate with
their keys; Control for `flwr` (register nodes, start and stop runs, read logs) and Runtime for Flower's own processes, which do
not ask who calls. So the SuperLink listens on loopback, and nginx at the public address compares each request line with
`FLEET_CALLS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedquilt.errors import FedquiltError
from fedquilt.federation.nginx.config_files import address_and_port, existing_file, filled_in, network, valid_port

# What a SuperNode with a registered key calls. Not here, of Fleet: register-node and unregister-node, for nodes without a key.
FLEET_CALLS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "pull-object",
    "push-object",
    "confirm-message-received",
)


@dataclass(frozen=True)
class Proxy:
    """What the proxy's configuration depends on.

    Attributes:
        listen: the public address and port, such as 0.0.0.0:8000.
        superlink_port: the SuperLink's port on loopback.
        certificate: the file with the certificate that the proxy shows.
        key: the file with its private key.
        authority: the file with the certificate of the authority that signed the SuperLink's, which the proxy checks.
        site_authority: None, or the same for the certificates that callers must show (mutual TLS).
        addresses: addresses and networks that may connect; none: all.
    """

    listen: str
    superlink_port: int
    certificate: Path
    key: Path
    authority: Path
    site_authority: Path | None = None
    addresses: Sequence[str] = ()

    def config(self) -> str:
        """nginx's configuration; what cannot work is refused with a sentence."""
        host, port = address_and_port(self.listen, "0.0.0.0:8000")
        superlink_port = valid_port(self.superlink_port)
        if port == superlink_port:
            raise FedquiltError(f"The proxy and the SuperLink cannot both have port {port}; give one of them another.")
        asked = []
        if self.site_authority is not None:
            file = existing_file(self.site_authority, "the certificate of the sites' authority")
            asked = [f"ssl_client_certificate {file};", "ssl_verify_client on;"]
        allowed = [f"allow {network(each)};" for each in self.addresses]
        return filled_in(
            "proxy.conf",
            {
                "listen": f"{host}:{port}",
                "superlink_port": superlink_port,
                "certificate": existing_file(self.certificate, "the certificate"),
                "key": existing_file(self.key, "the certificate's key"),
                "authority": existing_file(self.authority, "the certificate of the authority"),
                # Regular expressions, because nginx compares plain strings in a map without regard to case.
                "calls": _lines([f'"~^POST /v1/fleet/{call}$" 1;' for call in FLEET_CALLS]),
                "callers": _lines([*asked, *allowed, *(["deny all;"] if allowed else [])]),
            },
        )


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"        {line}\n" for line in lines)
