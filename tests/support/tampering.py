"""Replies of a hostile site: a real site's reply, changed on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from flwr.app import Message, RecordDict

from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.messages.wire import decode, encode

HOSTILE = 1001  # the node of site-1


def header_of(message: Message) -> dict[str, Any]:
    return unpack(message.content)[0]


def at(round: int, does: Callable[[Message], Message | None], node: int = HOSTILE) -> Callable:
    """Tamper with what a node replies in one round."""

    def tamper(who: int, message: Message, reply: Message) -> Message | None:
        header = header_of(message)
        return does(reply) if (who, header.get("kind"), header.get("round")) == (node, "round", round) else reply

    return tamper


def with_upload(change: Callable[[dict], bytes]) -> Callable[[Message], Message]:
    def does(reply: Message) -> Message:
        header, body = unpack(reply.content)
        reply.content = pack(header, change(decode(body)))
        return reply

    return does


def with_header(said: dict[str, Any]) -> Callable[[Message], Message]:
    def does(reply: Message) -> Message:
        header, body = unpack(reply.content)
        reply.content = pack({**header, **said}, body)
        return reply

    return does


def with_content(content: RecordDict) -> Callable[[Message], Message]:
    def does(reply: Message) -> Message:
        reply.content = content
        return reply

    return does


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    return with_upload(lambda m: encode({**m, name: change(m[name])}))


def put(index: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[index] = value
        return tensor

    return change


W = "model.conv1.weight"
