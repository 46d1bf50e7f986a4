"""A site's lasting key for secure aggregation, by which other sites know it: a file in its state folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fedquilt.errors import FedquiltError
from fedquilt.federation.secure.keys import KeyPair, public_key_of

FILE = "secure-identity.pem"


def site_identity(state: str | os.PathLike[str]) -> KeyPair:
    """The key pair in a site's state folder; it is made when it is first asked for."""
    path = Path(state) / FILE
    try:
        if not path.exists():
            _create(path, KeyPair.make().private)
        private = path.read_text(encoding="ascii")
        return KeyPair(private, public_key_of(private))
    except OSError as error:
        raise FedquiltError(
            f"{path}, this site's key for secure aggregation, cannot be used: {error.strerror}."
        ) from None
    except ValueError:
        raise FedquiltError(
            f"{path}, this site's key for secure aggregation, is damaged; delete it, and tell the others the new key."
        ) from None


def _create(path: Path, text: str) -> None:
    """Write a file that only its owner can read, complete or not at all; one that was made meanwhile stays."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
