"""Weights & Biases: a W&B run a seed, offline, in logs/wandb. `wandb sync DIR/logs/wandb/offline-run-...` uploads it.

Nothing leaves the machine unless WANDB_MODE says so; W&B's reports of its own errors go home even when offline, so they are
off unless WANDB_ERROR_REPORTING is set. The project is "fedquilt", or as WANDB_PROJECT says.

A resume has the same W&B id, which loggers.json names. Offline it writes the run anew, all rounds so far among them, in
place of what was written; online it goes on, and leaves out the rounds that W&B has.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import wandb

from fedquilt.loggers.base import Logger
from fedquilt.loggers.tags import CLIENTS_TEST, EDGES, best, clients_test, scalars


class WeightsAndBiases(Logger):
    """Metrics and a histogram of the clients' test metrics a round, the configuration a seed."""

    name = "wandb"

    def start(self, run: str, seed: int, settings: Mapping[str, bool | int | float | str]) -> None:
        """Begin the seed's W&B run anew; online, go on with it."""
        mode = os.environ.get("WANDB_MODE") or "offline"
        offline = mode in ("offline", "dryrun")
        number = self.noted(seed).get("id")
        if number is None:
            number = secrets.token_hex(4)
            self.note(seed, id=number)
        if offline:
            for old in (self.root / self.name).glob(f"offline-run-*-{number}"):
                shutil.rmtree(old, ignore_errors=True)  # W&B's own process may be writing there still
        self.root.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "fedquilt",
            group=run,
            name=f"{run} seed {seed}",
            id=number,
            resume=None if offline else "allow",
            reinit="create_new",  # whatever else the user logs there goes on
            mode=mode,
            dir=str(self.root.resolve()),  # it is written by another process, which stands elsewhere
            config=dict(settings),
            settings=wandb.Settings(silent=offline, console="off", disable_git=True, save_code=False),
        )

    def round(self, record: Mapping[str, Any]) -> None:
        """Metrics, and a histogram where clients were evaluated."""
        if record["round"] < self._run.step:
            return
        logged: dict[str, Any] = dict(scalars(record))
        if tests := clients_test(record):
            logged[CLIENTS_TEST] = wandb.Histogram(np_histogram=np.histogram(tests, EDGES))
        self._run.log(logged, step=record["round"])

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """The best round, and whether the run is finished or was stopped."""
        if summary is not None:
            self._run.summary.update(best(summary))
        self._run.finish(exit_code=int(summary is None))


LOGGER = WeightsAndBiases
