"""Which messages are taken: declared names with the dtype and shape they must have, and finite numbers that can be.

What a message looks like follows from the method, its settings and the widths of the task, not from anyone's data. So the
coordinator makes a client up, of a few nodes with no meaning, and looks at what that one would send; and a site looks at what
a server would answer to that.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence, Set
from functools import cached_property

import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, Sparse, TensorSpec, Value, check, declared, dense
from fedquilt.messages.wire import decode
from fedquilt.methods.base import Method
from fedquilt.training.engines.in_process import slice_message

# Beside its numbers, an upload has names, shapes and offsets: a JSON header.
OVERHEAD, OVERHEAD_EACH = 4096, 512
MOST = 1e9  # no weight, statistic or count is larger; seeds are, and are whole numbers
SHORT = 1.0  # uploads are not compared with a median that is shorter than this
FEW = 3  # so many uploads with noise are a measure for each other
NOISY = 100.0  # with fewer, noise may make an upload so many times as long as `norm-limit` allows


class BadMessageError(ValueError):
    """A message that is not taken; it says why, as the end of a sentence that begins with "its upload" or "the download"."""


class Expected:
    """What the messages of a method look like."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.cohort = Cohort([method.task.example_client(method.context.features, method.context.outputs)])

    @cached_property
    def downloads(self) -> Message:
        """What a client is sent: before the first round, and after it."""
        server, first = self.method.server_start()
        first = slice_message(first, self.method.downloads, 0, 1)
        later = self.method.aggregate(server, self.upload(0, first), self.cohort.ids, self.cohort.ids)
        return first | slice_message(later, self.method.downloads, 0, 1)

    def upload(self, round: int, down: Message) -> Message:
        """An upload of this round, after `down` (one client's); its numbers mean nothing."""
        with torch.no_grad():
            state = self.method.start(self.cohort)
        upload = self.method.local_update(state, self.cohort, down, round).upload
        check(upload, self.method.uploads, self.method.name, "upload")
        return upload


def taken(data: bytes, expected: Message, specs: Sequence[TensorSpec], protected: bool = False) -> Message:
    """The upload in `data`, if it is what `expected` looks like; BadMessageError otherwise.

    Where it is `protected`, by noise, it is dense and has floating-point numbers only.
    """
    if protected:
        expected = {name: dense(value).float() for name, value in expected.items()}
    limit = sum(_bytes(value) + OVERHEAD_EACH for value in expected.values()) + OVERHEAD
    if len(data) > limit:
        raise BadMessageError(f"has {len(data):,} bytes, where {limit:,} are the most it can need")
    message = _decoded(data)
    for name in message:
        if name not in expected:
            raise BadMessageError(f"has '{name[:80]}', which the method does not send")
    for name, value in expected.items():
        if name not in message:
            raise BadMessageError(f"lacks '{name}'")
        _check_form(name, message[name], value)
        _check_numbers(name, message[name], declared(specs, name))
    return {name: message[name] for name in expected}


def received(data: bytes, expected: Message, specs: Sequence[TensorSpec]) -> Message:
    """The download in `data`, if a server of the method may send it; BadMessageError otherwise.

    Which of the downloads a round has is the server's to say.
    """
    message = _decoded(data)
    for name, value in message.items():
        if declared(specs, name) is None:
            raise BadMessageError(f"has '{name[:80]}', which the method does not send")
        if name in expected:
            _check_form(name, value, expected[name])
        _check_numbers(name, value, None)
    return message


def overlong(
    uploads: Mapping[int, Message], specs: Sequence[TensorSpec], noisy: Set[int], limit: float
) -> dict[int, str]:
    """Those of a round's uploads that are more than `limit` times as long as the median one, and what is said of them.

    The length is the L2 norm of all that is no count. How long uploads with noise are is up to the noise: they are compared
    among themselves, or, where they are few, with all at a higher limit. Of two in the middle the shorter is the median, so
    that one of two sites is not a measure for itself.
    """
    out: dict[int, str] = {}
    lengths = {m: length(message, specs) for m, message in uploads.items()}
    plain, noised = set(lengths) - noisy, set(lengths) & noisy
    few = len(noised) < FEW
    for group, measure, most in (
        (plain, plain, limit),
        (noised, set(lengths) if few else noised, NOISY * limit if few else limit),
    ):
        usual = max(SHORT, statistics.median_low([lengths[m] for m in measure])) if measure else SHORT
        for m in sorted(group):
            if lengths[m] > most * usual:
                out[m] = f"is {lengths[m] / usual:.3g} times as long as is usual in the round"
    return out


def sound(message: Message) -> bool:
    """Whether all numbers of a message are finite, and none larger than any can be."""
    try:
        for name, value in message.items():
            _check_numbers(name, value, None)
    except BadMessageError:
        return False
    return True


def length(message: Message, specs: Sequence[TensorSpec]) -> float:
    """The L2 norm of all in an upload that is no count."""
    weighed = [dense(value) for name, value in message.items() if not _counts(declared(specs, name))]
    return sum(float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) ** 2 for tensor in weighed) ** 0.5


def _counts(spec: TensorSpec | None) -> bool:
    return spec is not None and spec.count


def _decoded(data: bytes) -> Message:
    try:
        return decode(data) if data else {}
    except ValueError:
        raise BadMessageError("cannot be read") from None


def _check_form(name: str, value: Value, expected: Value) -> None:
    found, right = dense(value), dense(expected)
    if isinstance(value, Sparse) != isinstance(expected, Sparse):
        raise BadMessageError(f"has '{name}' in the wrong form")
    if found.dtype != right.dtype:
        raise BadMessageError(f"has '{name}' as {found.dtype}, not {right.dtype}".replace("torch.", ""))
    if found.shape != right.shape:
        raise BadMessageError(f"has '{name}' of shape {list(found.shape)}, not {list(right.shape)}")


def _check_numbers(name: str, value: Value, spec: TensorSpec | None) -> None:
    found = dense(value)
    if not bool(torch.isfinite(found).all()):
        raise BadMessageError(f"has numbers in '{name}' that are not finite")
    if found.is_floating_point() and found.numel() and float(found.abs().max()) > MOST:
        raise BadMessageError(f"has numbers in '{name}' that are larger than {MOST:g}")
    if _counts(spec) and bool((found < 0).any() | ~(found > 0).any()):
        raise BadMessageError(f"has '{name}', which is a count, below zero or zero throughout")


def _bytes(value: Value) -> int:
    """The most that a tensor takes on the wire."""
    tensor = dense(value)
    return tensor.numel() * tensor.element_size()
