"""All loggers of a run, called together. None can stop the training: a logger that fails is dropped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedquilt.loggers.base import Logger, find_logger
from fedquilt.loggers.tags import hyperparameters

_MAX_MESSAGE = 200  # characters of a tool's own error message that are printed
Record = dict[str, Any]


class RunLoggers:
    """The loggers of one run."""

    def __init__(
        self,
        names: Sequence[str],
        run: str,
        options: Mapping[str, Any],
        settings: Mapping[str, Any],
        folder: Callable[[], Path],
    ) -> None:
        """Make the loggers.

        Args:
            names: which loggers; with none, nothing is written.
            run: the run's name.
            options: the run's options, and `settings`, the method's: logged as hyperparameters.
            folder: makes the folder of the logs; called only where there is a logger.
        """
        self._run, self._options, self._settings = run, options, settings
        found = [find_logger(name) for name in names]
        root = folder() if found else Path()
        self._loggers: list[Logger] = [logger(root) for logger in found]

    @contextmanager
    def seed(self, seed: int, watch: Callable[[Record], None] | None) -> Iterator[SeedLog]:
        """Log a seed that trains inside the `with` block; `watch`, if any, is called with each record too."""
        log = SeedLog(self, seed, watch)
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

    def begin_again(self, seed: int) -> None:
        """Begin the log of a seed again, as a resume does."""

        def again(logger: Logger) -> None:
            self._finish(logger, seed, None)
            self._start(logger, seed)

        self.each(again)

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
        logger.start(self._run, seed, hyperparameters(self._options, self._settings, seed))

    @staticmethod
    def _finish(logger: Logger, seed: int, summary: Record | None) -> None:
        logger.finish(summary)
        if summary is not None:
            logger.note(seed, finished=True)


class SeedLog:
    """The log of one seed in all loggers. Set `summary` when the seed is done."""

    def __init__(self, loggers: RunLoggers, seed: int, watch: Callable[[Record], None] | None) -> None:
        self._loggers, self._seed, self._watch = loggers, seed, watch
        self._rounds = 0
        self.summary: Record | None = None

    def round(self, record: Record) -> None:
        """Log a round that is done. Where it was done before, the seed is trained again from there: its log is begun again."""
        if record["round"] < self._rounds:
            self._loggers.begin_again(self._seed)
        self._rounds = record["round"] + 1
        self._loggers.each(lambda logger: logger.round(record))
        if self._watch is not None:
            self._watch(record)
