"""Checks of messages: declared names, with the expected dtype and shape, and finite numbers of a possible size.

The form of a message follows from the method, its settings and the widths of the run, not from anyone's data. So the
coordinator trains a dummy client (`Task.example_client`) and expects uploads of the form that this one sends. A
site expects downloads of the form that a server sends to the dummy client.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence, Set
from functools import cached_property

import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import WEIGHTS, Message, Sparse, TensorSpec, Value, check, declared, dense
from fedquilt.messages.slicing import slice_message
from fedquilt.messages.wire import decode
from fedquilt.methods.base import Method

# Bytes that an upload may have beside its numbers, for its header: a constant, and so many a tensor.
HEADER_BYTES, HEADER_BYTES_PER_TENSOR = 4096, 512
LARGEST = 1e9  # no weight or statistic is larger; integer seeds are
FEWEST = 3  # with fewer uploads than this there is no median of the others to compare one with
SMALLEST = 0.01  # tensors whose entries have a smaller root mean square are not used as a measure
SMALLEST_MEDIAN = 1.0  # nor are noisy uploads of a smaller norm
FEW_NOISY = 3  # with fewer noisy uploads than this, they are compared with all uploads
# How many times as long as the limit allows noisy uploads may be, as each site chooses its noise, and uploads of which nothing
# is known to compare them with; and noisy ones where they are few.
NOISY_FACTOR, FEW_NOISY_FACTOR = 30.0, 3000.0


class BadMessageError(ValueError):
    """A message that is not used; says why, as the end of a sentence that begins with "its upload" or "the download"."""


class ExpectedMessages:
    """The form of a method's messages, learned from a dummy client."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.cohort = Cohort([method.task.example_client(method.context.features, method.context.outputs)])
        self._forms: dict[Hashable, Message] = {}

    @property
    def downloads(self) -> Message:
        """All that a client is ever sent: before the first round, and after it."""
        return {name: value for down in self._downloads.values() for name, value in down.items()}

    @cached_property
    def _downloads(self) -> dict[int, Message]:
        """What a client is sent before each of the method's example rounds."""
        method = self.method
        server, down = method.server_start()
        rounds, found = method.example_rounds(), {}
        for round, after in zip(rounds, [*rounds[1:], None], strict=True):
            found[round] = slice_message(down, method.downloads, 0, 1)
            if after is not None:
                down = method.aggregate(server, self.upload_form(round, found[round]), self.cohort.ids, self.cohort.ids)
        return found

    @cached_property
    def upload_names(self) -> list[str]:
        """The name of every tensor that a client uploads in some round.

        They are the dummy client's in the first example rounds, until nothing is missing of an upload that is declared as a
        pattern, and all that the method says it sends, which may be in other rounds only.
        """
        names: list[str] = []
        sent = self.method.sent_uploads()
        for round, down in self._downloads.items():
            if round and all("*" not in spec.name or any(declared([spec], name) for name in names) for spec in sent):
                break
            names += self.upload_form(round, down)
        return list(dict.fromkeys([*names, *(spec.name for spec in sent if "*" not in spec.name)]))

    def upload_form(self, round: int, down: Message) -> Message:
        """An upload of this round after `down` (one client's); only names, dtypes and shapes mean anything.

        The dummy client trains once for each `Method.round_key`.
        """
        kind = (self.method.round_key(round), tuple(down))
        if kind not in self._forms:
            self._forms[kind] = self._train_dummy(round, down)
        return self._forms[kind]

    def _train_dummy(self, round: int, down: Message) -> Message:
        with torch.no_grad():
            state = self.method.start(self.cohort)
        upload = self.method.local_update(state, self.cohort, down, round).upload
        check(upload, self.method.uploads, self.method.name, "upload")
        return upload


def read_upload(
    data: bytes, expected: Message, specs: Sequence[TensorSpec], protected: bool = False, nodes: float = LARGEST
) -> Message:
    """The upload in `data`, where it has the form of `expected`; BadMessageError otherwise.

    An upload that is `protected` by noise is dense and has floating-point numbers only. `nodes` is the most that anything can
    be counted at the site.
    """
    if protected:
        expected = {name: dense(value).float() for name, value in expected.items()}
    limit = sum(_dense_bytes(value) + HEADER_BYTES_PER_TENSOR for value in expected.values()) + HEADER_BYTES
    if len(data) > limit:
        raise BadMessageError(f"has {len(data):,} bytes, where {limit:,} are the most it can need")
    message = _decode(data)
    for name in message:
        if name not in expected:
            raise BadMessageError(f"has '{name[:80]}', which the method does not send")
    for name, value in expected.items():
        if name not in message:
            raise BadMessageError(f"lacks '{name}'")
        _check_form(name, message[name], value)
        spec = declared(specs, name)
        _check_numbers(name, message[name], spec)
        if _is_count(spec) and float(dense(message[name]).max()) > nodes:
            raise BadMessageError(
                f"has '{name}', which is a count, above {nodes:g}, more than there can be at the site"
            )
    return {name: message[name] for name in expected}


def read_download(data: bytes, expected: Message, specs: Sequence[TensorSpec]) -> Message:
    """The download in `data`, where a server of the method may send it; BadMessageError otherwise.

    The server decides which of its declared downloads it sends in a round.
    """
    message = _decode(data)
    for name, value in message.items():
        if declared(specs, name) is None:
            raise BadMessageError(f"has '{name[:80]}', which the method does not send")
        if name in expected:
            _check_form(name, value, expected[name])
        _check_numbers(name, value, None)
    return message


def overlong_uploads(
    uploads: Mapping[int, Message],
    specs: Sequence[TensorSpec],
    noisy: Set[int],
    limit: float,
    downloads: Mapping[int, Message] | None = None,
) -> dict[int, str]:
    """The clients whose uploads are too long, each with a reason.

    Each tensor of an upload may have at most `limit` times the median norm of the same tensor in the other uploads. Of two
    middle norms the larger is the median, so that a site which sends nothing but zeros does not have the others left out.
    With fewer than FEWEST uploads without noise, the measure is what the client was sent under the same name in `downloads`;
    where it was sent nothing, or zeros, the smaller norm at a higher limit. What is no weight, such as variances, grows with
    the square of what it is computed from, and gradients of clients that have learned their labels vanish, so the limit of
    these is `limit` squared.
    """
    out = overlong_noise(uploads, specs, noisy, limit)
    plain = {m: _norms(message, specs) for m, message in uploads.items() if m not in noisy}
    for m, norms in plain.items():
        for name, (norm, entries) in norms.items():
            others = [plain[other][name][0] for other in plain if other != m]
            least = SMALLEST * math.sqrt(entries)
            before = _norm((downloads or {}).get(m, {}).get(name))
            spec = declared(specs, name)
            most = limit if spec is not None and spec.kind == WEIGHTS and not spec.gradient else limit**2
            if len(others) + 1 >= FEWEST:
                usual = max(statistics.median_high(others), least)
            elif before > least:
                usual = before
            else:
                usual, most = max(SMALLEST_MEDIAN, min([norm, *others])), NOISY_FACTOR * most
            if norm > most * usual:
                out[m] = f"has '{name}' {norm / usual:.3g} times as long as is usual in the round"
    return out


def overlong_noise(
    uploads: Mapping[int, Message], specs: Sequence[TensorSpec], noisy: Set[int], limit: float
) -> dict[int, str]:
    """The same of noisy uploads, whose norms depend on their noise, which every site chooses.

    They are compared as a whole and among themselves, or, where they are few, with all uploads at a higher limit. Of two middle
    norms the smaller is the median: so with two sites, neither raises the limit for itself.
    """
    norms = {m: upload_norm(message, specs) for m, message in uploads.items()}
    noised = {m: norm for m, norm in norms.items() if m in noisy}
    few = len(noised) < FEW_NOISY
    compared_with = norms if few else noised
    usual = max(SMALLEST_MEDIAN, statistics.median_low(compared_with.values()) if noised else 0.0)
    most = limit * (FEW_NOISY_FACTOR if few else NOISY_FACTOR)
    return {
        m: f"is {norm / usual:.3g} times as long as is usual in the round"
        for m, norm in sorted(noised.items())
        if norm > most * usual
    }


def has_possible_numbers(message: Message) -> bool:
    """Whether all numbers of a message are finite and not larger than LARGEST."""
    try:
        for name, value in message.items():
            _check_numbers(name, value, None)
    except BadMessageError:
        return False
    return True


def upload_norm(message: Message, specs: Sequence[TensorSpec]) -> float:
    """The L2 norm of all tensors in an upload that are not counts."""
    tensors = [dense(value) for name, value in message.items() if not _is_count(declared(specs, name))]
    return sum(_norm(tensor) ** 2 for tensor in tensors) ** 0.5


def _norms(message: Message, specs: Sequence[TensorSpec]) -> dict[str, tuple[float, int]]:
    """The L2 norm and the number of entries of each tensor that is not a count."""
    tensors = {name: dense(value) for name, value in message.items() if not _is_count(declared(specs, name))}
    return {name: (_norm(tensor), tensor.numel()) for name, tensor in tensors.items()}


def _norm(value: Value | None) -> float:
    return 0.0 if value is None else float(torch.linalg.vector_norm(dense(value), dtype=torch.float64))


def _is_count(spec: TensorSpec | None) -> bool:
    return spec is not None and spec.count


def _decode(data: bytes) -> Message:
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
    if found.is_floating_point() and found.numel() and float(found.abs().max()) > LARGEST:
        raise BadMessageError(f"has numbers in '{name}' that are larger than {LARGEST:g}")
    if _is_count(spec) and bool((found < 0).any() | ~(found > 0).any()):
        raise BadMessageError(f"has '{name}', which is a count, below zero or zero throughout")


def _dense_bytes(value: Value) -> int:
    """The most bytes that a tensor takes on the wire."""
    tensor = dense(value)
    return tensor.numel() * tensor.element_size()
