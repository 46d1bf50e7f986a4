"""Weights & Biases: a W&B run for each seed, offline, in logs/wandb. `wandb sync DIR/logs/wandb/offline-run-...` uploads it.

Nothing leaves the machine unless WANDB_MODE says so. W&B sends reports of its own errors even when offline, so they are off
unless WANDB_ERROR_REPORTING is set. The project is "fedquilt", or the one in WANDB_PROJECT.

A resume uses the same W&B id, which is stored in loggers.json. Offline it writes the run anew, with all rounds so far, in place
of the old one. Online it continues the run and skips the rounds that W&B has.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedquilt.loggers.base import Logger, register_logger
from fedquilt.loggers.tags import CLIENTS_TEST, EDGES, best, clients_test, scalars


@register_logger("wandb")
class WeightsAndBiases(Logger):
    """Each round: metrics and a histogram of the clients' test metrics. Each seed: the configuration."""

    title = "Weights & Biases"
    packages = ("wandb",)
    environment: ClassVar = {"WANDB_ERROR_REPORTING": "false"}

    def start(self, run: str, seed: int, settings: Mapping[str, bool | int | float | str]) -> None:
        """Write the seed's W&B run anew; online, continue it."""
        import wandb

        mode = os.environ.get("WANDB_MODE") or "offline"
        offline = mode in ("offline", "dryrun")
        number = self.noted(seed).get("id")
        if number is None:
            number = secrets.token_hex(4)
            self.note(seed, id=number)
        if offline:
            for old in (self.root / self.name).glob(f"offline-run-*-{number}"):
                shutil.rmtree(old, ignore_errors=True)  # W&B's own process may still write there
        self.root.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "fedquilt",
            group=run,
            name=f"{run} seed {seed}",
            id=number,
            resume=None if offline else "allow",
            reinit="create_new",  # other W&B runs of the user are not ended
            mode=mode,
            dir=str(self.root.resolve()),  # absolute: another process with another working folder writes it
            config=dict(settings),
            settings=wandb.Settings(silent=offline, console="off", disable_git=True, save_code=False),
        )

    def round(self, record: Mapping[str, Any]) -> None:
        """Log metrics, and a histogram where clients were evaluated."""
        import wandb

        if record["round"] < self._run.step:
            return
        logged: dict[str, Any] = dict(scalars(record))
        if tests := clients_test(record):
            logged[CLIENTS_TEST] = wandb.Histogram(np_histogram=np.histogram(tests, EDGES))
        self._run.log(logged, step=record["round"])

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """Log the best round, and whether the seed is finished or was stopped."""
        if summary is not None:
            self._run.summary.update(best(summary))
        self._run.finish(exit_code=int(summary is None))
