"""What a logger is, and how one is found. A logger follows one seed after the other, from `start` to `finish`.

A logger is a file of this package named as its tool, which imports the tool's package at its top; it is imported when it is
asked for, never before.

On resume every round so far comes again, through `round`, before the first new one. So a logger either begins a seed's log
anew in `start`, or goes on with the one it began and leaves out the rounds that are there. Each says which.
"""

from __future__ import annotations

import importlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from fedquilt.common.files import write_json
from fedquilt.errors import FedquiltError, unknown

# The loggers by name, and what their tools call themselves.
TOOLS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "Weights & Biases"}
# Tools that report their use or their errors to their makers read this when they are imported. What the user has set stays.
_AT_HOME = {"mlflow": "MLFLOW_DISABLE_TELEMETRY=true", "wandb": "WANDB_ERROR_REPORTING=false"}
NOTES = "loggers.json"


class Logger(ABC):
    """One tool's log of one run. It may raise whatever it likes: the training goes on without it."""

    name: ClassVar[str]

    def __init__(self, root: Path) -> None:
        """`root` is the folder of the run's logs; a tool has a folder of its own in it."""
        self.root = root

    @abstractmethod
    def start(self, run: str, seed: int, settings: Mapping[str, bool | int | float | str]) -> None:
        """A seed starts, or goes on: the run's name, and all that determines the seed's numbers."""

    @abstractmethod
    def round(self, record: Mapping[str, Any]) -> None:
        """A round is done; see `fedquilt.loggers.tags` for what of it is logged, and by which names."""

    @abstractmethod
    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """The seed is done, with this summary; None: it was stopped, and may be resumed one day."""

    def noted(self, seed: int) -> dict[str, Any]:
        """What was noted of a seed, such as its number in the tool."""
        return dict(self._notes().get(self.name, {}).get(str(seed), {}))

    def note(self, seed: int, **facts: Any) -> None:
        """Note something of a seed in loggers.json, for a resume."""
        notes = self._notes()
        notes.setdefault(self.name, {}).setdefault(str(seed), {}).update(facts)
        write_json(self.root / NOTES, notes)

    def _notes(self) -> dict[str, Any]:
        path = self.root / NOTES
        return json.loads(path.read_bytes()) if path.is_file() else {}


def find_logger(name: str) -> type[Logger]:
    """The logger called `name`; an error with the nearest right name, or with what to install."""
    if name not in TOOLS:
        raise unknown("logger", name, TOOLS)
    if name in _AT_HOME:
        os.environ.setdefault(*_AT_HOME[name].split("="))
    try:
        module = importlib.import_module(f"fedquilt.loggers.{name}")
    except ImportError as error:
        raise FedquiltError(
            f"Logging to {TOOLS[name]} needs its package; install it with: pip install 'fedquilt[{name}]'."
        ) from error
    found: type[Logger] = module.LOGGER
    return found


def check_loggers(names: str | Iterable[str]) -> tuple[str, ...]:
    """Names of loggers, each once: those of `names`, which may hold several with commas; all can be used."""
    listed = [names] if isinstance(names, str) else names
    found = dict.fromkeys(name.strip() for piece in listed for name in piece.split(",") if name.strip())
    for name in found:
        find_logger(name)
    return tuple(found)
