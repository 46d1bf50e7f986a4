"""MLflow: an MLflow run for each seed, in the database logs/mlflow/mlflow.db, or where MLFLOW_TRACKING_URI says.

It is a database because MLflow 3 does not write plain folders by default. The experiment is called "fedquilt", or as
MLFLOW_EXPERIMENT_NAME says. MLflow's telemetry is off unless MLFLOW_DISABLE_TELEMETRY is set.

A resume continues the same MLflow run, whose id is stored in loggers.json, and skips the rounds that it has: trained again,
they give the same numbers. Where the run was deleted, or is in another store, a new run gets all rounds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from fedquilt.loggers.base import Logger, register_logger
from fedquilt.loggers.tags import best, scalars

if TYPE_CHECKING:
    from mlflow.entities import Metric

_BATCH = 1000  # metrics that MLflow takes at once
_EVERY_SECONDS = 2.0  # a call takes as long as a small round, so rounds are sent together


@register_logger("mlflow")
class MLflow(Logger):
    """Each round: metrics. Each seed: parameters."""

    title = "MLflow"
    packages = (
        "mlflow",
        "alembic",
        "sqlalchemy",
    )  # MLflow writes databases with the last two, but does not require them
    environment: ClassVar = {"MLFLOW_DISABLE_TELEMETRY": "true"}

    def start(self, run: str, seed: int, settings: Mapping[str, bool | int | float | str]) -> None:
        """Create the seed's MLflow run, or continue the one that was started."""
        from mlflow import MlflowClient
        from mlflow.entities import Param, RunTag

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs the creation of its tables
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or self._database())
        self._waiting: list[Metric] = []
        self._sent = time.monotonic()
        found = self._started(seed)
        self._last = -1 if found is None else self._last_round(found)
        if found is not None:
            self._run = found
            self._client.update_run(found, status="RUNNING")
            return
        made = self._client.create_run(self._experiment(), run_name=f"{run} seed {seed}")
        self._run = made.info.run_id
        self._client.log_batch(
            self._run,
            params=[Param(name, str(value)) for name, value in settings.items()],
            tags=[RunTag("fedquilt.logs", str(self.root.resolve())), RunTag("fedquilt.seed", str(seed))],
        )
        self.note(seed, id=self._run)

    def round(self, record: Mapping[str, Any]) -> None:
        """Collect metrics; they are sent every few seconds, those of one round always together."""
        from mlflow.entities import Metric

        if record["round"] <= self._last:
            return
        now = int(time.time() * 1000)
        metrics = [Metric(tag, value, now, record["round"]) for tag, value in scalars(record).items()]
        if len(self._waiting) + len(metrics) > _BATCH or time.monotonic() - self._sent > _EVERY_SECONDS:
            self._send()
        self._waiting += metrics

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """Log the best round, and whether the seed is finished or was stopped."""
        from mlflow.entities import Metric

        self._send()
        if summary is not None:
            now = int(time.time() * 1000)
            self._client.log_batch(self._run, [Metric(tag, value, now, 0) for tag, value in best(summary).items()])
        self._client.set_terminated(self._run, "KILLED" if summary is None else "FINISHED")

    def _send(self) -> None:
        if self._waiting:
            self._client.log_batch(self._run, self._waiting)
        self._waiting, self._sent = [], time.monotonic()

    def _database(self) -> str:
        place = (self.root / self.name).resolve()
        place.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{place / 'mlflow.db'}"

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "fedquilt"
        found = self._client.get_experiment_by_name(name)
        return found.experiment_id if found is not None else self._client.create_experiment(name)

    def _started(self, seed: int) -> str | None:
        """The id of the seed's MLflow run, if one was started and is in this store."""
        from mlflow import MlflowException

        run: str | None = self.noted(seed).get("id")
        try:
            there = run is not None and self._client.get_run(run).info.lifecycle_stage == "active"
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if there else None

    def _last_round(self, run: str) -> int:
        """The last round that is complete: `seconds` is the last metric of a round."""
        return max((metric.step for metric in self._client.get_metric_history(run, "seconds")), default=-1)
