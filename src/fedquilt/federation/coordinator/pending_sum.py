"""The masked sum that a coordinator is about to unmask, on its disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedquilt.common.sealed import DamagedError, facts_path, read_pair, tensor_path, write_pair
from fedquilt.federation.secure.keys import KeyTable, SiteKeys
from fedquilt.federation.secure.opening import MaskedSum


class PendingSum:
    """The masked sum that the coordinator is about to unmask, in two files.

    Sites give their shares for one sum a round only. So a coordinator that is restarted goes on with the sum it had.
    """

    def __init__(self, stem: Path, run: str) -> None:
        self.stem, self.run = stem, run

    def save(self, masked: MaskedSum, metrics: Tensor) -> None:
        """Write the sum, and the metrics that sites sent with their uploads."""
        tensors = {"total": torch.from_numpy(masked.total.view(np.int64)), "metrics": metrics}
        keys = {str(m): list(each) for m, each in masked.keys.items()}
        facts = {"run": self.run, "sum": masked.sum_id, "round": masked.round, "keys": keys}
        write_pair(self.stem, tensors, facts | {"members": masked.members, "alive": masked.alive})

    def load(self, round: int) -> tuple[MaskedSum, Tensor] | None:
        """The sum of a round and the metrics, or None where there is none."""
        try:
            tensors, facts = read_pair(self.stem)
        except DamagedError:
            return None
        if (facts.get("run"), facts.get("round")) != (self.run, round):
            return None
        keys: KeyTable = {int(m): SiteKeys(*each) for m, each in facts["keys"].items()}
        total = tensors["total"].numpy().view(np.uint64)
        return MaskedSum(facts["sum"], round, keys, facts["members"], facts["alive"], total), tensors["metrics"]

    def delete(self) -> None:
        """Delete the files."""
        facts_path(self.stem).unlink(missing_ok=True)
        tensor_path(self.stem).unlink(missing_ok=True)
