"""All loggers of a run, called together. None can stop the training: a logger that fails is dropped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.loggers.base import Logger, find_logger
from fedquilt.loggers.tags import hyperparameters
from fedquilt.methods.settings import as_dict
from fedquilt.runs.folder import RunFolder

if TYPE_CHECKING:
    from fedquilt.runs.resolve import ResolvedRun

FOLDER = "logs"
_MAX_MESSAGE = 200  # characters of a tool's own error message that are printed
Record = dict[str, Any]


class RunLoggers:
    """A run's loggers. Their folder is logs/ in the run's; for a run in memory, one of its name in logs/ here."""

    def __init__(self, names: Sequence[str], experiment: ResolvedRun, folder: RunFolder | None) -> None:
        self._config, self._settings = experiment.config, as_dict(experiment.settings)
        self._loggers: list[Logger] = []
        if names:
            found = [find_logger(name) for name in names]
            here = folder or RunFolder.create(None, self._config.name, Path(FOLDER))
            root = here.path if folder is None else here.path / FOLDER
            self._loggers = [logger(root) for logger in found]

    @contextmanager
    def seed(self, seed: int, watch: Callable[[Record], None] | None) -> Iterator[SeedLog]:
        """Log a seed that trains inside the `with` block; `watch`, if any, is called with each record too."""
        log = SeedLog(self, watch)
        self.each(lambda logger: self._start(logger, seed))
        try:
            yield log
        finally:
            self.each(lambda logger: self._finish(logger, seed, log.summary))

    def catch_up(self, seed: int, records: Sequence[Record], summary: Record) -> None:
        """Log a seed that trained before, in each logger that has no complete log of it."""

        def replay(logger: Logger) -> None:
            if logger.noted(seed).get("finished"):
                return
            self._start(logger, seed)
            for record in records:
                logger.round(record)
            self._finish(logger, seed, summary)

        self.each(replay)

    def each(self, act: Callable[[Logger], None]) -> None:
        """Call `act` with each logger. Where it raises, print a sentence and drop that logger."""
        for logger in list(self._loggers):
            try:
                act(logger)
            except Exception as error:
                self._loggers.remove(logger)
                why = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")[:_MAX_MESSAGE]
                sentence = f"Logging to {logger.title} failed ({why}); the training goes on without it."
                print(f"fedquilt: {sentence}", file=sys.stderr, flush=True)

    def _start(self, logger: Logger, seed: int) -> None:
        logger.start(self._config.name, seed, hyperparameters(self._config, self._settings, seed))

    @staticmethod
    def _finish(logger: Logger, seed: int, summary: Record | None) -> None:
        logger.finish(summary)
        if summary is not None:
            logger.note(seed, finished=True)


class SeedLog:
    """The log of one seed in all loggers. Set `summary` when the seed is done."""

    def __init__(self, loggers: RunLoggers, watch: Callable[[Record], None] | None) -> None:
        self._loggers, self._watch = loggers, watch
        self.summary: Record | None = None

    def round(self, record: Record) -> None:
        """Log a round that is done."""
        self._loggers.each(lambda logger: logger.round(record))
        if self._watch is not None:
            self._watch(record)
