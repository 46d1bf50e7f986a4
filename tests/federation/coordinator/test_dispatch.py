"""Requests to nodes, and the replies that are collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message
from google.protobuf.message import DecodeError

from fedquilt.federation.coordinator.dispatch import NoReply, RequestBatch
from fedquilt.federation.flower_messages import unpack
from fedquilt.federation.protocol import HELLO, VERSION
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, write_open_sites


@pytest.fixture
def grid(tmp_path: Path) -> MemoryGrid:
    return MemoryGrid(write_open_sites(tmp_path, ragged_clients((12, 9, 9))))


def test_every_reply_comes_once_with_its_node(grid: MemoryGrid) -> None:
    batch = RequestBatch(grid, "query", "hello", 60.0)
    for node in (1000, 1002):
        batch.send(node, {"kind": HELLO}, b"")
    assert all(unpack(message.content)[0] == {"version": VERSION, "kind": HELLO} for _, message in grid.sent)
    assert {node: reply[0]["name"] for node, reply in batch.collect()} == {1000: "site-0", 1002: "site-2"}
    assert (batch.collect(), batch.open, batch.expired) == ([], {}, False)


def test_one_reply_that_cannot_be_unpacked_does_not_harm_the_others(grid: MemoryGrid) -> None:
    def tamper(node: int, message: Message, reply: Message) -> Any:
        return {1000: DecodeError("garbage"), 1001: Message(Error(1, "it crashed"), reply_to=message)}.get(node, reply)

    grid.tamper = tamper
    batch = RequestBatch(grid, "query", "hello", 60.0)
    for node in (1000, 1001, 1002):
        batch.send(node, {"kind": HELLO}, b"")
    replies = dict(batch.collect())
    assert replies[1000] == NoReply("cannot be read", retry=False)
    assert replies[1001] == NoReply("Flower says: it crashed", retry=True)
    assert replies[1002][0]["name"] == "site-2"


def test_an_error_of_the_superlink_is_nobodys_reply(grid: MemoryGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = RequestBatch(grid, "query", "hello", 60.0)
    batch.send(1000, {"kind": HELLO}, b"")

    def gone(ids: Any) -> Any:
        raise ConnectionError("the SuperLink is gone")

    monkeypatch.setattr(grid, "pull_messages", gone)
    with pytest.raises(ConnectionError):
        batch.collect()


def test_a_batch_expires(grid: MemoryGrid) -> None:
    assert RequestBatch(grid, "query", "hello", 0.0).expired
