"""Callbacks: objects that are told when a seed of a run starts, after each of its rounds, and when it ends."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

from fedquilt.common.printable import printable
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.training.round_store import Record
from fedquilt.training.stop import StopRun

_LONGEST = 300  # characters of a callback's own error that are printed


class Callback:
    """Follows a run. Subclass it, override what you need, and give it to `fedquilt.run(..., watch=MyCallback())`.

    The calls of one seed are `start`, `round` for every round, `end`; then those of the next seed. After a resume, the rounds
    that were done before are told again, from the first one on.

    Raise `fedquilt.StopRun("why")` in any of the three to stop the run. The round is recorded first, and a checkpoint is
    written; `fedquilt.run` returns the run so far, whose `stopped` says why. A run in a folder goes on from there with
    `fedquilt.resume`. Any other exception is reported on stderr, with the line where it was raised: that callback is not
    called again in this run, and the training goes on without it. Ctrl-C stops the run as ever.
    """

    def start(self, config: RunConfig, seed: int, rounds: int) -> None:
        """A seed starts, or is resumed; it has at most so many rounds."""

    def round(self, record: Record) -> None:
        """A round is done: `round`, `bytes_up`, ... as in a line of metrics.jsonl; `val`, `test`, ... if it was evaluated."""

    def end(self, summary: Record | None) -> None:
        """A seed is done, with this summary (summary.json). None: it was stopped, by Ctrl-C, an error or `StopRun`."""


Watcher = Callback | Sequence[Callback]


class Callbacks:
    """The callbacks of a run, called together.

    Attributes:
        stop: the first request to stop, where one was made.
    """

    def __init__(self, watch: Watcher | None, first: Sequence[Any] = ()) -> None:
        """`first` are called before those of `watch`, and have the three functions of a `Callback`."""
        self._called: list[Any] = [*first, *callbacks_of(watch)]
        self.stop: StopRun | None = None

    def start(self, config: RunConfig, seed: int, rounds: int) -> None:
        """Tell all that a seed starts."""
        self._each("start", config, seed, rounds)

    def round(self, record: Record) -> None:
        """Tell all of a round; raises `StopRun` where one of them asks for it."""
        self._each("round", record)
        if self.stop is not None:
            raise self.stop

    def end(self, summary: Record | None) -> None:
        """Tell all that a seed ended."""
        self._each("end", summary)

    def _each(self, what: str, *arguments: Any) -> None:
        for callback in list(self._called):
            try:
                getattr(callback, what)(*arguments)
            except StopRun as stop:
                self.stop = self.stop or stop
            except Exception as error:
                self._called.remove(callback)
                _report(callback, what, error)


def callbacks_of(watch: Watcher | None) -> list[Callback]:
    """The callbacks that were given: one, several or none; anything else is an error."""
    listed = [] if watch is None else [watch] if isinstance(watch, Callback) else watch
    if not isinstance(listed, Sequence) or not all(isinstance(each, Callback) for each in listed):
        raise FedquiltError(
            f"watch takes a fedquilt.Callback or a list of them, not {type(watch).__name__}; subclass it, as "
            "`fedquilt docs python` shows."
        )
    return list(listed)


def _report(callback: object, what: str, error: Exception) -> None:
    """Print one sentence: which callback failed, how, and in which line."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first one is this module's
    where = f", {frames[-1].filename} line {frames[-1].lineno}" if frames else ""
    why = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")[:_LONGEST]
    sentence = (
        f"The callback {type(callback).__name__} failed in {what} ({why}{where}); the training goes on without it."
    )
    print(printable(f"fedquilt: {sentence}"), file=sys.stderr, flush=True)
