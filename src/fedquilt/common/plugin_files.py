"""Plug-in files: Python files of a user, read, remembered and executed.

A plug-in is executed only where its user names it: on the command line, in Python, in a site's own site.yaml, or in the
environment (`PLUGINS`). A path in a config file or in a run folder names nothing: such a file is executed only where the same
user named the same file, with the same content, before on this machine (`is_known`). So a run folder from somebody else
executes nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from platformdirs import user_state_dir

from fedquilt.common.json_text import read_json
from fedquilt.common.read_limit import read_bounded
from fedquilt.errors import FedquiltError

PLUGINS = "FEDQUILT_PLUGINS"  # the environment's plug-ins: paths with a colon (Windows: a semicolon) between them
PREFIX = "fedquilt_plugin_"  # of the modules that plug-ins are executed as
_LARGEST = 10 * 2**20
_MOST_KNOWN = 1000  # files that are remembered, the newest


@dataclass(frozen=True)
class PluginFile:
    """A file as it was read: its absolute path, its content, and the hash of that."""

    path: Path
    content: bytes

    @property
    def sha256(self) -> str:
        """The hash of the content."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def module(self) -> str:
        """The name of its module: the same in every process that loads the same path."""
        return f"{PREFIX}{self.path.stem}_{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:8]}"


def read_plugin(path: str | os.PathLike[str]) -> PluginFile:
    """Read a plug-in; nothing is executed."""
    where = Path(path).expanduser().absolute()
    if where.suffix != ".py":
        raise FedquiltError(f"The plug-in {where} is no Python file; give one whose name ends in .py.")
    try:
        return PluginFile(where.resolve(), read_bounded(where, _LARGEST))
    except OSError as error:
        raise FedquiltError(f"The plug-in {where} cannot be read: {error.strerror}; give its path.") from None
    except ValueError as error:
        raise FedquiltError(f"The plug-in {where} cannot be read: {error}.") from None


def execute(file: PluginFile) -> ModuleType:
    """Execute a plug-in as a module; what goes wrong in it is one sentence with its line."""
    module = ModuleType(file.module)
    module.__file__ = str(file.path)
    sys.modules[file.module] = module
    try:
        exec(compile(file.content, str(file.path), "exec"), module.__dict__)  # noqa: S102 (its user named it)
    except (Exception, SystemExit) as error:
        del sys.modules[file.module]
        raise FedquiltError(f"The plug-in {file.path} cannot be loaded: {_reason(error, file.path)}.") from error
    return module


def _reason(error: BaseException, path: Path) -> str:
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, FedquiltError | NameTakenError) else f"{type(error).__name__}: "
    said = " ".join(f"{kind}{what}".split()).rstrip(". ")
    return said if line is None else f"line {line}: {said}"


class NameTakenError(ValueError):
    """A name is registered a second time."""


def remember(file: PluginFile) -> None:
    """Remember that this user named this file with this content: child processes load it, and a resume may."""
    listed = os.environ.get(PLUGINS, "").split(os.pathsep)
    if str(file.path) not in listed:
        os.environ[PLUGINS] = os.pathsep.join([*filter(None, listed), str(file.path)])
    if is_known(file):
        return
    from fedquilt.common.files import write_json  # imports NumPy, which `--help` does without

    known = [*_known(), [str(file.path), file.sha256]][-_MOST_KNOWN:]
    try:
        _store().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(_store(), known)
    except OSError:
        return  # a resume in another process then asks for its name


def is_known(file: PluginFile) -> bool:
    """Whether this user named this file before, at this path and with this content."""
    return [str(file.path), file.sha256] in _known()


def _known() -> list[Any]:
    try:
        known = read_json(_store())
    except (OSError, ValueError):
        return []
    return known if isinstance(known, list) else []


def _store() -> Path:
    return Path(user_state_dir("fedquilt", appauthor=False)) / "plugins.json"
