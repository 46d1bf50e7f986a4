"""A registry: entries of one sort by name, registered by the modules that define them, by plug-ins and by packages.

Beside the modules of fedquilt, three things register entries: a plug-in file (`fedquilt.common.plugin_files`), an installed
package with an entry point in the group `fedquilt.plugins`, and any code that calls the functions to register.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from weakref import WeakSet

from fedquilt.common.plugin_files import PLUGINS, NameTakenError, execute, is_known, read_plugin, remember
from fedquilt.errors import FedquiltError, unknown

T = TypeVar("T")
GROUP = "fedquilt.plugins"
BUILT_IN = "built in"
_NOTEBOOK = "__main__"

_log = logging.getLogger(__name__)
_loaded: dict[str, tuple[str, str]] = {}  # by path, the module and the hash of a plug-in that was executed
_looked = False  # whether packages and the environment were searched for plug-ins


class Registry(Generic[T]):
    """Entries by name.

    The modules of `package`, if any, register their entries when they are imported, and the first lookup imports all of them.
    So a new module in that folder is all that a new entry needs. Entries may also be registered from anywhere else.
    """

    every: ClassVar[WeakSet[Registry[Any]]] = WeakSet()

    def __init__(self, noun: str, package: str | None = None) -> None:
        self.noun = noun
        self.package = package
        self._entries: dict[str, T] = {}
        self._modules: dict[str, str] = {}  # that registered an entry; "" for those of fedquilt
        self._imported = False
        Registry.every.add(self)

    def add(self, name: str, entry: T) -> None:
        """Register an entry; a name can be taken only once, but a notebook may run a cell again."""
        module = _registering_module()
        if module:
            self._import_own()
        if name in self._entries and not module == self._modules[name] == _NOTEBOOK:
            raise NameTakenError(
                f"the {self.noun} '{name}' is registered twice: it is {self._from(name)} already; choose another name"
            )
        self._entries[name] = entry
        self._modules[name] = module

    def remove(self, name: str) -> None:
        """Take an entry out again."""
        del self._entries[name]
        del self._modules[name]

    def remove_all_of(self, module: str) -> None:
        """Take out all entries that a module registered."""
        for name in [name for name, owner in self._modules.items() if owner == module]:
            self.remove(name)

    def all(self) -> dict[str, T]:
        """All entries, in the order in which they were registered."""
        self._import_own()
        _look_for_plugins()
        return dict(self._entries)

    def find(self, name: str) -> T:
        """The entry called `name`, or an error that names the nearest right one."""
        entries = self.all()
        if name not in entries:
            raise unknown(self.noun, name, entries)
        return entries[name]

    def origin(self, name: str) -> str:
        """Where an entry comes from: `BUILT_IN`, the file of a plug-in, or the module of a package or a script."""
        files = {module: Path(path).name for path, (module, _) in _loaded.items()}
        module = self._modules[name]
        return files.get(module, module) or BUILT_IN

    def from_module(self, module: str) -> list[str]:
        """The names that a module registered."""
        return [name for name, owner in self._modules.items() if owner == module]

    def _from(self, name: str) -> str:
        origin = self.origin(name)
        return origin if origin == BUILT_IN else f"from {origin}"

    def _import_own(self) -> None:
        if not self._imported:
            self._imported = True  # first, because the modules may look up entries themselves
            for module in module_names(self.package) if self.package else ():
                importlib.import_module(f"{self.package}.{module}")

    def __contains__(self, name: object) -> bool:
        return name in self.all()


def _registering_module() -> str:
    """The module outside of fedquilt that registers an entry now; "" where it is one of fedquilt that is being imported."""
    frame = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith("fedquilt."):
            return name
        if frame.f_code.co_name == "<module>":
            return ""
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def load_plugins(paths: Iterable[str | os.PathLike[str]], named: bool) -> list[str]:
    """Load plug-in files and return their absolute paths. One that is loaded already is loaded again only if it changed.

    Args:
        paths: the files.
        named: the user named them just now. Else they come from a file, and one that this user did not name before is refused.
    """
    found = []
    for file in map(read_plugin, paths):
        path = str(file.path)
        found.append(path)
        if not named and not is_known(file) and _loaded.get(path) != (file.module, file.sha256):
            raise FedquiltError(
                f"The plug-in {path} was not executed, as you never ran it with this content on this machine; look at it, and "
                f"name it if you trust it: --plugin {path}, or plugins=['{path}'] in Python."
            )
        if _loaded.get(path) != (file.module, file.sha256):
            _forget(path)
            _loaded[path] = file.module, file.sha256
            try:
                execute(file)
                if not any(registry.from_module(file.module) for registry in Registry.every):
                    raise FedquiltError(
                        f"The plug-in {path} registers nothing; `fedquilt docs plugins` says what it can register."
                    )
            except BaseException:
                _forget(path)
                raise
        if named:
            remember(file)
    return found


def known_plugins(paths: object) -> list[str]:
    """Those of the files in a run folder's configuration that can be read and that this user named before."""
    known = []
    for path in paths if isinstance(paths, list) else []:
        try:
            if isinstance(path, str) and is_known(read_plugin(path)):
                known.append(path)
        except FedquiltError:
            continue
    return known


def loaded_plugins() -> list[str]:
    """The files that are loaded in this process."""
    return list(_loaded)


def plugin_entries() -> dict[str, list[str]]:
    """What plug-ins and packages registered: by origin, such as "method mine"."""
    found: dict[str, list[str]] = {}
    for registry in sorted(Registry.every, key=lambda registry: registry.noun):
        for name in registry.all():
            if registry.origin(name) != BUILT_IN:
                found.setdefault(registry.origin(name), []).append(f"{registry.noun} {name}")
    return found


def _forget(path: str) -> None:
    module, _ = _loaded.pop(path, ("", ""))
    if module:
        for registry in Registry.every:
            registry.remove_all_of(module)
        sys.modules.pop(module, None)


def _look_for_plugins() -> None:
    """Load installed packages that declare plug-ins, and the files that the environment names, once."""
    global _looked
    if _looked:
        return
    _looked = True
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:  # a package that is broken must not break runs that do not need it
            why = " ".join(f"{type(error).__name__}: {error}".split())
            _log.warning(
                "The installed plug-in %s (%s) cannot be loaded: %s; it is left out.", entry.name, entry.value, why
            )
    if os.environ.get(PLUGINS):
        load_plugins(filter(None, os.environ[PLUGINS].split(os.pathsep)), named=True)


def module_names(package: str) -> list[str]:
    """The modules in the folder of a package of fedquilt, sorted. Nothing is imported."""
    folder = Path(__file__).parents[1].joinpath(*package.split(".")[1:])
    return sorted(module.name for module in pkgutil.iter_modules([str(folder)]))
