"""A site's ledgers: a line for every tensor that left, on disk before the tensor leaves. There is one for each run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fedquilt.common.files import plain
from fedquilt.common.json_lines import JsonLines
from fedquilt.common.private_files import append_private, make_private_folder, write_private_bytes
from fedquilt.errors import FedquiltError
from fedquilt.federation.site.state import LEDGERS, make_private, run_folders
from fedquilt.messages.message import Sparse, TensorSpec, UndeclaredError, Value, declared, dense

LEDGER = "ledger.jsonl"


@dataclass(frozen=True)
class Payment:
    """What one protected upload cost.

    Attributes:
        number: which upload of the site it is, from 1.
        noise: its noise's standard deviation over the clip norm.
        epsilon: what the site has spent after it.
    """

    number: int
    noise: float
    epsilon: float


class Ledger:
    """One line of JSON for every tensor that left: when, round, name, shape, dtype, bytes, norm, noise, and what it reveals.

    `noise` is None where none was added; with noise, `paid` is the number of the upload that the site paid for.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """`folder` is the run's folder in the site's state folder."""
        self.path = Path(folder) / LEDGER
        self._checked_end = False

    @classmethod
    def at(cls, path: Path) -> Ledger:
        """The ledger in a file of any name."""
        ledger = cls(path.parent)
        ledger.path = path
        return ledger

    def write(
        self, round: int, message: Mapping[str, Value], specs: Sequence[TensorSpec], payment: Payment | None = None
    ) -> None:
        """Write a line for each tensor that is about to leave (leading axis of one); they are on the disk on return.

        `payment` is what was paid for the message, where noise was added to it.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [_line(at, round, name, value, specs, payment) for name, value in message.items()]
        if not lines:
            return
        make_private(self.path.parent)
        self._drop_incomplete_line()
        text = "".join(json.dumps(plain(line), ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
        append_private(self.path, text.encode("utf-8"))

    def lines(self) -> list[dict[str, Any]]:
        """All lines, oldest first. An incomplete last line, left by a kill, is skipped."""
        return JsonLines(self.path, _is_line, "a ledger's line", "; the ledger was altered", strict_end=True).read()

    def bytes_by_round(self) -> dict[int, int]:
        """How many bytes left in each round; a round that was trained again counts again."""
        total: dict[int, int] = {}
        for line in self.lines():
            total[line["round"]] = total.get(line["round"], 0) + line["bytes"]
        return total

    def archive(self, state: Path, run: str) -> None:
        """Move the ledger of a run to the folder of ledgers that outlive their runs' folders."""
        if not self.path.exists():
            return
        kept = _archived(state, run)
        make_private_folder(kept.parent)
        if kept.exists():
            write_private_bytes(kept, kept.read_bytes() + self.path.read_bytes())
            self.path.unlink()
        else:
            os.replace(self.path, kept)

    def _drop_incomplete_line(self) -> None:
        """Once, before the first write: remove a last line that a kill left incomplete."""
        if not self._checked_end and self.path.exists():
            raw = self.path.read_bytes()
            complete = raw[: raw.rfind(b"\n") + 1]
            if complete != raw:
                write_private_bytes(self.path, complete)
        self._checked_end = True


def all_ledgers(state: Path) -> list[tuple[str, Ledger]]:
    """Every ledger of a site with its run's name: those of runs that are there, and those of runs that were deleted."""
    there = [(folder.name, Ledger(folder)) for folder in run_folders(state)]
    kept = sorted((state / LEDGERS).glob("*.jsonl")) if (state / LEDGERS).is_dir() else []
    return [(run, ledger) for run, ledger in there if ledger.path.exists()] + [(p.stem, Ledger.at(p)) for p in kept]


@dataclass(frozen=True)
class LedgersSay:
    """What a site's ledgers say about its privacy.

    Attributes:
        uploads: how many protected uploads were paid for, at least: the number of the last one that left.
        precision: the sum of 1 / noise^2 over them.
        silent: how many runs have lines of an earlier version, which do not say whether there was noise.
    """

    uploads: int
    precision: float
    silent: int


def read_payments(state: Path) -> LedgersSay:
    """What the ledgers in a state folder say about protected uploads; FedquiltError where one was altered."""
    paid: dict[tuple[str, int], float] = {}
    silent = 0
    for run, ledger in all_ledgers(state):
        found = ledger.path.stat()
        noises, old = _payments(str(ledger.path), found.st_size, found.st_mtime_ns)
        paid |= {(run, number): noise for number, noise in noises.items()}
        silent += old
    last = max((number for _, number in paid), default=0)
    return LedgersSay(max(last, len(paid)), math.fsum(noise**-2 for noise in paid.values()), silent)


@lru_cache(maxsize=1024)
def _payments(path: str, size: int, changed: int) -> tuple[dict[int, float], bool]:
    """The noise of each upload in a ledger by its number, and whether lines are of an earlier version.

    A ledger is read again only where its size or time of change is another.
    """
    noises: dict[int, float] = {}
    silent = False
    for line in Ledger.at(Path(path)).lines():
        silent |= "noise" not in line
        noise, number = line.get("noise"), line.get("paid")
        if noise is None:
            continue
        if type(noise) not in (int, float) or not 0 < noise < math.inf or type(number) is not int:
            raise FedquiltError(f"{path} has a noise that cannot be right; the ledger was altered.")
        noises[number] = noise
    return noises, silent


def _archived(state: Path, run: str) -> Path:
    return state / LEDGERS / f"{run}.jsonl"


def _is_line(line: Mapping[str, Any]) -> bool:
    return {"round", "name", "bytes"} <= line.keys()


def _line(
    at: str, round: int, name: str, value: Value, specs: Sequence[TensorSpec], payment: Payment | None
) -> dict[str, Any]:
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
        "noise": None if payment is None else payment.noise,
        **({} if payment is None else {"paid": payment.number}),
        "reveals": spec.reveals,
    }
