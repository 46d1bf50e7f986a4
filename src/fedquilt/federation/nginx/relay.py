"""A site's relay to a proxy that asks for certificates: it shows the site's, which a SuperNode of Flower 1.41 cannot do itself.

The SuperNode connects to the relay on loopback, and the relay to the coordinator, whose certificate it checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedquilt.errors import FedquiltError
from fedquilt.federation.nginx.config_files import existing_file, filled_in, host_and_port, is_address, valid_port

EXAMPLE = "coordinator.example:8000"


@dataclass(frozen=True)
class Relay:
    """What the relay's configuration depends on.

    Attributes:
        coordinator: the proxy's name and port, such as coordinator.example:8000.
        port: the relay's port on loopback.
        certificate: the file with the certificate that the relay shows, to the proxy and, as localhost, to the SuperNode.
        key: the file with its private key.
        authority: the file with the certificate of the authority that signed the coordinator's.
    """

    coordinator: str
    port: int
    certificate: Path
    key: Path
    authority: Path

    def config(self) -> str:
        """nginx's configuration; what cannot work is refused with a sentence."""
        host, port = host_and_port(self.coordinator, EXAMPLE)
        if is_address(host):
            raise FedquiltError(
                f"'{host}' is an address, and nginx checks certificates by name; write it as in {EXAMPLE}."
            )
        return filled_in(
            "relay.conf",
            {
                "name": host,
                "coordinator": f"{host}:{port}",
                "port": valid_port(self.port),
                "certificate": existing_file(self.certificate, "the site's certificate"),
                "key": existing_file(self.key, "the certificate's key"),
                "authority": existing_file(self.authority, "the certificate of the coordinator's authority"),
            },
        )
