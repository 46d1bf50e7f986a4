"""All loggers of a run, called together. None can stop the training: a logger that fails is dropped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedquilt.loggers.base import Logger, find_logger
from fedquilt.loggers.tags import hyperparameters

_MAX_MESSAGE = 200  # characters of a tool's own error message that are printed
Record = dict[str, Any]


class RunLoggers:
    """The loggers of one run, as one of its callbacks (`fedquilt.runs.callbacks.Callback`)."""

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
        self._seed, self._rounds = 0, 0

    def start(self, config: object, seed: int, rounds: int) -> None:
        """A seed starts or is resumed."""
        self._seed, self._rounds = seed, 0
        self.each(lambda logger: self._start(logger, seed))

    def round(self, record: Record) -> None:
        """A round is done. Where it was done before, the seed is trained again from there: its log is begun again."""
        if record["round"] < self._rounds:
            self.begin_again(self._seed)
        self._rounds = record["round"] + 1
        self.each(lambda logger: logger.round(record))

    def end(self, summary: Record | None) -> None:
        """The seed is done, with this summary; None: it was stopped."""
        self.each(lambda logger: self._finish(logger, self._seed, summary))

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
