"""Sends requests to nodes over Flower's grid and collects their replies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from httpx import HTTPError

from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.federation.protocol import VERSION, Reply

POLL_SECONDS = 0.2  # between looks for replies; Flower's own send_and_receive looks every 3
POLL_SLOWER_ABOVE = (
    10  # with more open requests the pause grows in proportion: each is looked for by a request of its own
)


@dataclass(frozen=True)
class NoReply:
    """Why there is no reply to read, and whether asking again may help."""

    reason: str
    retry: bool


class RequestBatch:
    """Requests of one kind with one deadline. A reply that comes later is ignored.

    Attributes:
        open: the node of each request that has no reply yet, by the request's id.
    """

    def __init__(self, grid: Grid, kind: str, group: str, timeout: float) -> None:
        self.grid, self.kind, self.group = grid, kind, group
        self.deadline = time.monotonic() + timeout
        self.open: dict[str, int] = {}

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return not self.seconds_left

    def pause(self) -> None:
        """Wait until the next look for replies."""
        time.sleep(POLL_SECONDS * max(1.0, len(self.open) / POLL_SLOWER_ABOVE))

    def send(self, node: int, header: Mapping[str, Any], body: bytes) -> None:
        """Send a request to a node. Flower drops a request that the node has not fetched by the deadline."""
        content = pack({"version": VERSION, **header}, body)
        message = Message(content, node, self.kind, ttl=max(1.0, self.seconds_left), group_id=self.group)
        (number,) = self.grid.push_messages([message])
        if number:
            self.open[number] = node

    def collect(self) -> list[tuple[int, Reply | NoReply]]:
        """The replies that have come since the last look, each with its node.

        They are fetched one by one: Flower unpacks what a node wrote, and a reply that it cannot unpack must not make the
        others fail.
        """
        out: list[tuple[int, Reply | NoReply]] = []
        for number, node in list(self.open.items()):
            try:
                replies = list(self.grid.pull_messages([number]))
            except (OSError, HTTPError):  # the SuperLink does not answer, which is no site's fault
                raise
            except Exception:
                out.append((node, NoReply("cannot be read", retry=False)))
                del self.open[number]
                continue
            if replies:
                del self.open[number]
                out.append((node, _read(replies[0])))
        return out


def _read(reply: Message) -> Reply | NoReply:
    if reply.has_error():
        return NoReply(f"Flower says: {str(reply.error.reason)[:300]}", retry=True)
    try:
        return unpack(reply.content)
    except (ValueError, KeyError, TypeError, RecursionError):
        return NoReply("cannot be read", retry=False)
