"""A site's uploads by secure aggregation: it answers the stages of the protocol, and masks what it trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fedquilt.errors import FedquiltError
from fedquilt.federation.protocol import CONFIRM, ROUND, SETUP, SHARE, UNMASK, RefusedError, Reply, Request
from fedquilt.federation.secure.fixed_point import FixedPoint
from fedquilt.federation.secure.identity import site_identity
from fedquilt.federation.secure.participant import Participant
from fedquilt.federation.secure.tables import read_key_table, read_survivors, read_texts, split_parts, write_table
from fedquilt.federation.site.config import SiteConfig
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.messages.wire import decode
from fedquilt.methods.base import Method

T = TypeVar("T")


def check_sums_enough(method: Method) -> None:
    """Refuse secure aggregation for a method whose server has to see single uploads, or that sends nothing."""
    if not method.sent_uploads():
        raise FedquiltError(f"{method.name} uploads nothing with these settings; leave out secure-aggregation.")
    if method.single_uploads:
        raise FedquiltError(
            f"Secure aggregation does not work with {method.name}: its {method.single_uploads}; choose another method, or "
            "leave out secure-aggregation."
        )


def check_secure(site: SiteConfig, method: Method, request: Request) -> None:
    """Refuse an upload in the clear where the site demands secure aggregation, and a masked one that no server can use."""
    if request.secure is not None:
        try:
            check_sums_enough(method)
        except FedquiltError as error:
            raise RefusedError(str(error)) from None
    elif request.kind == ROUND and site.secure_aggregation == "required" and method.sent_uploads():
        raise RefusedError(
            f"Site '{site.name}' demands secure aggregation and sends nothing in the clear; run with secure-aggregation=true."
        )


def ledger_specs(method: Method, request: Request, uploads: Message) -> tuple[Message, Sequence[TensorSpec]]:
    """Uploads as they leave, for the ledger, with what they reveal: masked numbers have eight bytes each."""
    if request.secure is None:
        return dict(uploads), method.uploads
    specs = [
        replace(spec, reveals=f"Masked; only in a sum over several sites: {spec.reveals}") for spec in method.uploads
    ]
    return {name: dense(value).double() for name, value in uploads.items()}, specs


class SecureUploads:
    """Answers one request of a sum that the site has a part in.

    Args:
        folder: the run's folder in the site's state folder.
    """

    def __init__(self, site: SiteConfig, folder: Path, method: Method, request: Request) -> None:
        assert request.secure is not None
        self.method, self.request = method, request
        self.sum, self.range = request.secure["sum"], request.secure["range"]
        self.participant = Participant(
            folder, request.run, request.client, method.context.clients, site_identity(site.state), site.secure_peers
        )

    def answer(self, body: bytes, train: Callable[[bytes], Reply]) -> Reply:
        """The reply to a stage. `train` trains a round from a download and gives the reply of a round in the clear."""
        kind, own = self.request.kind, self.participant
        if kind == SETUP:
            return {"keys": list(own.setup(self.sum, self.request.round, self.range))}, b""
        if kind == SHARE:
            return {}, write_table(own.share(self.sum, _read(read_key_table, body)))
        if kind == CONFIRM:
            return {"signature": own.confirm(self.sum, *_read(read_survivors, body))}, b""
        if kind == UNMASK:
            return {}, write_table(own.unmask(self.sum, _read(read_texts, body)))
        if kind != ROUND:
            raise RefusedError("Secure aggregation is for rounds only.")
        sealed, download = _read(split_parts, body)
        own.accept(self.sum, self.request.round, self.range, _read(read_texts, sealed))
        header, upload = train(download)
        return header, self._masked(decode(upload))

    def _masked(self, upload: Message) -> bytes:
        """The upload as a masked vector's bytes."""
        fixed = FixedPoint(self.method.context.clients, self.range)
        within, clipped = fixed.clipped(upload, self.method.uploads)
        vector = fixed.encode(self.method.summands(within), clipped)
        return self.participant.masked(self.sum, vector).astype("<u8").tobytes()


def _read(reader: Callable[[bytes], T], data: bytes) -> T:
    """What `reader` reads in bytes that the coordinator sent; RefusedError where it cannot."""
    try:
        return reader(data)
    except ValueError as error:
        raise RefusedError(f"Secure aggregation: {error}.") from None
