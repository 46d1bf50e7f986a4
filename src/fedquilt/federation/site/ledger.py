"""The ledger at the site: a line for every tensor that left, on disk before it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fedquilt.common.files import plain, write_bytes
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.state import make_private
from fedquilt.messages.message import Sparse, TensorSpec, UndeclaredError, Value, declared, dense

LEDGER = "ledger.jsonl"


class Ledger:
    """One line of JSON for every tensor that left: when, round, name, shape, dtype, bytes, norm, and what it reveals."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / LEDGER
        self._tail_is_whole = False

    def note(self, round: int, message: Mapping[str, Value], specs: Sequence[TensorSpec]) -> None:
        """Write down what is about to leave, with a leading axis of one; when this returns it is on the disk."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [_line(at, round, name, value, specs) for name, value in message.items()]
        if not lines:
            return
        make_private(self.path.parent)
        self._mend()
        text = "".join(json.dumps(plain(line), ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
        with open(self.path, "ab") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Everything that left, oldest first; a last line that a kill tore is left out."""
        return [line for line, _ in self._read()]

    def bytes_by_round(self) -> dict[int, int]:
        """How many bytes left in each round; a round that was done again counts again."""
        total: dict[int, int] = {}
        for line in self.lines():
            total[line["round"]] = total.get(line["round"], 0) + line["bytes"]
        return total

    def _read(self) -> list[tuple[dict[str, Any], bytes]]:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return []
        pairs = []
        rows = raw.split(b"\n")[:-1]  # what comes after the last line's end is a torn line, or nothing
        for number, row in enumerate(rows, start=1):
            try:
                line = json.loads(row)
            except ValueError:
                raise FedquiltError(f"Line {number} of {self.path} is not JSON; the ledger was altered.") from None
            if not isinstance(line, dict) or not {"round", "name", "bytes"} <= line.keys():
                raise FedquiltError(f"Line {number} of {self.path} is not a ledger's line; the ledger was altered.")
            pairs.append((line, row))
        return pairs

    def _mend(self) -> None:
        """Before the first line, drop one that a kill tore, so that the new line is not glued to it."""
        if not self._tail_is_whole and self.path.exists():
            raw = self.path.read_bytes()
            whole = raw[: raw.rfind(b"\n") + 1]
            if whole != raw:
                write_bytes(self.path, whole)
        self._tail_is_whole = True


def _line(at: str, round: int, name: str, value: Value, specs: Sequence[TensorSpec]) -> dict[str, Any]:
    spec = declared(specs, name)
    if spec is None:
        raise UndeclaredError(f"'{name}' was to leave, which the method did not declare.")
    tensor = dense(value).detach()
    size = int(value.bytes_each().sum()) if isinstance(value, Sparse) else tensor.numel() * tensor.element_size()
    return {
        "at": at,
        "round": round,
        "name": name,
        "shape": list(tensor.shape[1:]),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "bytes": size,
        "norm": float(torch.linalg.vector_norm(tensor.double())),
        "reveals": spec.reveals,
    }
