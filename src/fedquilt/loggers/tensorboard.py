"""TensorBoard: event files in logs/tensorboard/seed-<s>. Look at them with `tensorboard --logdir DIR`.

A resume writes the seed's events anew, with all rounds so far, to a second file that tells TensorBoard to drop the first.
The first file stays, because a running TensorBoard that has it open would not find another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedquilt.loggers.base import Logger, register_logger
from fedquilt.loggers.tags import CLIENTS_TEST, EDGES, best, clients_test, scalars

_FLUSH_SECONDS = 10


@register_logger("tensorboard")
class TensorBoard(Logger):
    """Each round: scalars and a histogram of the clients' test metrics. Each seed: a row in the table of hyperparameters."""

    title = "TensorBoard"
    packages = ("torch.utils.tensorboard",)

    def start(self, run: str, seed: int, settings: Mapping[str, bool | int | float | str]) -> None:
        """Write the seed's events anew."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        place = self.root / self.name / f"seed-{seed}"
        self._writer = SummaryWriter(str(place), purge_step=0, flush_secs=_FLUSH_SECONDS)
        # The table's columns and this seed's row; the end of the row is written when the seed is done.
        goals = dict.fromkeys(("best/val", "best/test", "best/round"), 0.0)
        columns, row, self._end = hparams(dict(settings), goals)
        for part in (columns, row):
            self._writer._get_file_writer().add_summary(part)

    def round(self, record: Mapping[str, Any]) -> None:
        """Write scalars, and a histogram where clients were evaluated."""
        for tag, value in scalars(record).items():
            self._writer.add_scalar(tag, value, record["round"])
        if tests := clients_test(record):
            self._writer.add_histogram(CLIENTS_TEST, np.array(tests), record["round"], bins=EDGES)

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """Write the best round, and the end of the row in the table."""
        if summary is not None:
            for tag, value in best(summary).items():
                self._writer.add_scalar(tag, value, 0)
            self._writer._get_file_writer().add_summary(self._end)
        self._writer.close()
