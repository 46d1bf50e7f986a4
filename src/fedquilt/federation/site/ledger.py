"""A site's ledger: a line for every tensor that left, on disk before the tensor leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fedquilt.common.files import plain, write_bytes
from fedquilt.common.json_lines import JsonLines
from fedquilt.federation.site.state import make_private
from fedquilt.messages.message import Sparse, TensorSpec, UndeclaredError, Value, declared, dense

LEDGER = "ledger.jsonl"


class Ledger:
    """One line of JSON for every tensor that left: when, round, name, shape, dtype, bytes, norm, and what it reveals."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / LEDGER
        self._checked_end = False

    def write(self, round: int, message: Mapping[str, Value], specs: Sequence[TensorSpec]) -> None:
        """Write a line for each tensor that is about to leave (leading axis of one); they are on the disk on return."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [_line(at, round, name, value, specs) for name, value in message.items()]
        if not lines:
            return
        make_private(self.path.parent)
        self._drop_incomplete_line()
        text = "".join(json.dumps(plain(line), ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
        with open(self.path, "ab") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """All lines, oldest first. An incomplete last line, left by a kill, is skipped."""
        return JsonLines(self.path, _is_line, "a ledger's line", "; the ledger was altered", strict_end=True).read()

    def bytes_by_round(self) -> dict[int, int]:
        """How many bytes left in each round; a round that was trained again counts again."""
        total: dict[int, int] = {}
        for line in self.lines():
            total[line["round"]] = total.get(line["round"], 0) + line["bytes"]
        return total

    def _drop_incomplete_line(self) -> None:
        """Once, before the first write: remove a last line that a kill left incomplete."""
        if not self._checked_end and self.path.exists():
            raw = self.path.read_bytes()
            complete = raw[: raw.rfind(b"\n") + 1]
            if complete != raw:
                write_bytes(self.path, complete)
        self._checked_end = True


def _is_line(line: Mapping[str, Any]) -> bool:
    return {"round", "name", "bytes"} <= line.keys()


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
