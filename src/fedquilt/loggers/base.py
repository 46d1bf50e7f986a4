"""What a logger is, and how one is found.

A logger is one file of this package with a subclass of `Logger` that is decorated with `register_logger`. Nothing else names
it. The file can be imported without the tool: it imports the tool's package inside its functions, and lists it in `packages`.

A logger follows one seed after the other, from `start` to `finish`. On resume all rounds so far are passed to `round` again,
before the first new one. So a logger either writes a seed's log anew in `start`, or continues it and skips rounds it already
has. The docstring of each logger says which.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from fedquilt.common.files import write_json
from fedquilt.common.json_text import read_json
from fedquilt.common.registry import Registry
from fedquilt.errors import FedquiltError

NOTES = "loggers.json"


class Logger(ABC):
    """One tool's log of one run. An exception of a logger does not stop the training; see `fedquilt.loggers.run_loggers`.

    Attributes:
        name: as in `--log` and in `pip install 'fedquilt[name]'`.
        title: what the tool calls itself.
        packages: modules that the tool needs; imported when the logger is asked for.
        environment: variables that are set before that, unless the user has set them.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(self, root: Path) -> None:
        """`root` is the folder of the run's logs; a tool writes to a folder of its own in it."""
        self.root = root

    @abstractmethod
    def start(self, run: str, seed: int, settings: Mapping[str, bool | int | float | str]) -> None:
        """A seed starts or is resumed. `run` is the run's name, `settings` all that determines the seed's numbers."""

    @abstractmethod
    def round(self, record: Mapping[str, Any]) -> None:
        """A round is done. `fedquilt.loggers.tags` says what of its record is logged, and under which names."""

    @abstractmethod
    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """The seed is done, with this summary. None: it was stopped and may be resumed later."""

    def noted(self, seed: int) -> dict[str, Any]:
        """What `note` stored about a seed, such as its identifier in the tool."""
        return dict(self._notes().get(self.name, {}).get(str(seed), {}))

    def note(self, seed: int, **facts: Any) -> None:
        """Store facts about a seed in loggers.json, for a resume."""
        notes = self._notes()
        notes.setdefault(self.name, {}).setdefault(str(seed), {}).update(facts)
        write_json(self.root / NOTES, notes)

    def _notes(self) -> dict[str, Any]:
        path = self.root / NOTES
        try:
            notes = read_json(path) if path.is_file() else {}
            return {name: {seed: dict(facts) for seed, facts in seeds.items()} for name, seeds in notes.items()}
        except (ValueError, TypeError, AttributeError):
            raise FedquiltError(f"{path} is damaged; delete it, and the tool's log begins anew.") from None


LOGGERS: Registry[type[Logger]] = Registry("logger", "fedquilt.loggers")
_L = TypeVar("_L", bound=type[Logger])


def register_logger(name: str) -> Callable[[_L], _L]:
    """Make a logger known by `name`."""

    def decorate(cls: _L) -> _L:
        cls.name = name
        LOGGERS.add(name, cls)
        return cls

    return decorate


def find_logger(name: str) -> type[Logger]:
    """The logger called `name`, its packages imported; an error with the nearest right name, or with what to install."""
    found = LOGGERS.find(name)
    for variable, value in found.environment.items():
        os.environ.setdefault(variable, value)
    try:
        for package in found.packages:
            importlib.import_module(package)
    except ImportError as error:
        raise FedquiltError(
            f"Logging to {found.title} needs its package; install it with: pip install 'fedquilt[{name}]'."
        ) from error
    return found


def check_loggers(names: str | Iterable[str]) -> tuple[str, ...]:
    """The names of loggers, each once, from texts that may hold several with commas; an error for one that cannot be used."""
    listed = [names] if isinstance(names, str) else names
    found = dict.fromkeys(name.strip() for piece in listed for name in piece.split(",") if name.strip())
    for name in found:
        find_logger(name)
    return tuple(found)
