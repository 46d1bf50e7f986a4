"""The interface of what changes uploads on their way from the clients to the server, such as noise or an attack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from fedquilt.messages.message import Message, TensorSpec


class UploadTransform(Protocol):
    """Changes uploads before the server aggregates them. Transforms are applied one after the other.

    `fedquilt.privacy.dp.Protection` and `fedquilt.scenarios.attacks.Attack` are transforms.
    """

    def applied(
        self, uploads: Message, specs: Sequence[TensorSpec], round: int, senders: Tensor, down: Message
    ) -> Message:
        """The changed uploads; the given ones stay as they are.

        Args:
            uploads: leading axis the senders.
            specs: the method's declared uploads.
            round: the number of the round.
            senders: [n] the clients' numbers, in rising order.
            down: the download of this round.
        """

    def record_entries(self, round: int) -> dict[str, float]:
        """Entries for the record of a round."""

    def summary_entries(self, rounds: int) -> dict[str, Any]:
        """Entries for summary.json after so many rounds."""

    def groups(self, clients: int) -> dict[str, list[int]]:
        """Groups of the M clients that are reported apart, by name; empty where there are none."""
