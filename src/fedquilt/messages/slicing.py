"""Cut a message into the parts of some clients, and join the parts of several cohorts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedquilt.devices.offload import moved_to_front
from fedquilt.messages.message import Factored, Message, Sparse, TensorSpec, Value, declared, dense


def slice_message(message: Message, specs: Sequence[TensorSpec], first: int, last: int) -> Message:
    """Return the part of a message for the participants first .. last - 1. A shared tensor is part of every slice."""

    def cut(name: str, value: Value) -> Value:
        spec = declared(specs, name)
        if spec is not None and spec.shared:
            return value
        if isinstance(value, Factored):
            return value.rows(first, last)
        return Sparse(value.tensor[first:last]) if isinstance(value, Sparse) else value[first:last]

    return {name: cut(name, value) for name, value in message.items()}


def take_rows(message: Message, rows: Tensor, specs: Sequence[TensorSpec] = ()) -> Message:
    """Return the part of a message for some of its clients, by their places [k] in it, in rising order.

    A tensor that `specs` declare as shared is a part of it as it is. Rows of an offloaded tensor are moved to its beginning, so
    that they are not in memory at once; the others are lost then.
    """

    def taken(name: str, value: Value) -> Value:
        spec = declared(specs, name)
        if spec is not None and spec.shared:
            return value
        if isinstance(value, Factored):
            return Factored(value.left[rows], value.right, value.own[rows], value.stack[rows])
        return same_kind(value, moved_to_front(dense(value), rows))

    return {name: taken(name, value) for name, value in message.items()}


def join_messages(messages: Sequence[Message]) -> Message:
    """Join the uploads of several cohorts to one message, participants in the given order."""
    if len(messages) == 1:
        return messages[0]
    return {
        name: same_kind(value, torch.cat([dense(message[name]) for message in messages]))
        for name, value in messages[0].items()
    }


def same_kind(value: Value, tensor: Tensor) -> Value:
    """Return `tensor` as `Sparse` if `value` is `Sparse`, else unchanged."""
    return Sparse(tensor) if isinstance(value, Sparse) else tensor
