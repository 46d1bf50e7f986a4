"""The interface of the place where a training writes records and checkpoints. `runs.folder.SeedFolder` is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

# One line of metrics.jsonl.
Record = dict[str, Any]


class SavedRound(Protocol):
    """A checkpoint: the state after a round."""

    @property
    def round(self) -> int:
        """The last round that it includes."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The saved tensors, on the CPU."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What was saved beside the tensors, as JSON gives it back."""


class RoundStore(Protocol):
    """Stores the records and checkpoints of one training."""

    def append(self, record: Record) -> None:
        """Add the record of a round."""

    def records(self) -> list[Record]:
        """All records, oldest first."""

    def checkpoint(self, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Save the state after a round."""

    def latest_checkpoint(self) -> SavedRound | None:
        """The newest checkpoint that is not damaged; None where there is none."""

    def truncate_after(self, round: int) -> None:
        """Delete the records and checkpoints of later rounds."""
