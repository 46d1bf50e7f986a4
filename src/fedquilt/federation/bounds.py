"""Which uploads a coordinator takes: declared names with the dtype and shape they must have, and finite numbers.

What an upload looks like follows from the method, its settings and the widths of the task, not from anyone's data. So the
coordinator makes a client up, of a few nodes with no meaning, and looks at what that one would send.
"""

from __future__ import annotations

import numpy as np
import torch

from fedquilt.cohort import Client, Cohort
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.methods.contract import Method
from fedquilt.privacy.crossing import Message, Sparse, Value, check, dense
from fedquilt.privacy.wire import decode

# Beside its numbers, an upload has names, shapes and offsets: a JSON header.
OVERHEAD, OVERHEAD_EACH = 4096, 512


class BadUploadError(ValueError):
    """An upload that is not taken; the message says why, as the end of a sentence that begins with "its upload"."""


class Expected:
    """What the uploads of a method look like."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.cohort = Cohort([_made_up(method)])

    def of(self, round: int, down: Message) -> Message:
        """An upload of this round, after `down` (one client's); its numbers mean nothing."""
        with torch.no_grad():
            state = self.method.start(self.cohort)
        upload = self.method.local_update(state, self.cohort, down, round).upload
        check(upload, self.method.uploads, self.method.name, "upload")
        return upload


def _made_up(method: Method) -> Client:
    """A ring of nodes, each class among its training nodes."""
    task = method.task
    nodes = 3 * max(task.classes, 4)
    u = np.arange(nodes)
    x = np.random.default_rng(0).random((nodes, task.features), dtype=np.float32)
    edges = np.stack([u, (u + 1) % nodes])
    edges.sort(axis=0)
    split = np.array([TRAIN, VAL, TEST], dtype=np.int8)[u // (nodes // 3)]
    graph = Graph("made up", edges, x, (u % task.classes).astype(np.int64), task.classes)
    return Client(0, graph, split)


def taken(data: bytes, expected: Message, protected: bool = False) -> Message:
    """The upload in `data`, if it is what `expected` looks like; BadUploadError otherwise.

    Where it is `protected`, by noise, it is dense and has floating-point numbers only.
    """
    if protected:
        expected = {name: dense(value).float() for name, value in expected.items()}
    limit = sum(_bytes(value) + OVERHEAD_EACH for value in expected.values()) + OVERHEAD
    if len(data) > limit:
        raise BadUploadError(f"has {len(data):,} bytes, where {limit:,} are the most it can need")
    try:
        message = decode(data) if data else {}
    except ValueError:
        raise BadUploadError("cannot be read") from None
    for name in message:
        if name not in expected:
            raise BadUploadError(f"has '{name[:80]}', which the method does not send")
    for name, value in expected.items():
        if name not in message:
            raise BadUploadError(f"lacks '{name}'")
        _check(name, message[name], value)
    return {name: message[name] for name in expected}


def _check(name: str, value: Value, expected: Value) -> None:
    found, right = dense(value), dense(expected)
    if isinstance(value, Sparse) != isinstance(expected, Sparse):
        raise BadUploadError(f"has '{name}' in the wrong form")
    if found.dtype != right.dtype:
        raise BadUploadError(f"has '{name}' as {found.dtype}, not {right.dtype}".replace("torch.", ""))
    if found.shape != right.shape:
        raise BadUploadError(f"has '{name}' of shape {list(found.shape)}, not {list(right.shape)}")
    if not bool(torch.isfinite(found).all()):
        raise BadUploadError(f"has numbers in '{name}' that are not finite")


def _bytes(value: Value) -> int:
    """The most that a tensor takes on the wire."""
    tensor = dense(value)
    return tensor.numel() * tensor.element_size()
