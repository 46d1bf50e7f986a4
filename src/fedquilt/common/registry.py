"""A registry: entries of one sort by name, registered by the modules that define them."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Generic, TypeVar

from fedquilt.errors import unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Entries by name.

    The modules of `package` register their entries when they are imported, and the first lookup imports all of them. So a new
    module in that folder is all that a new entry needs. Entries may also be registered from anywhere else.
    """

    def __init__(self, noun: str, package: str) -> None:
        self.noun = noun
        self.package = package
        self._entries: dict[str, T] = {}
        self._imported = False

    def add(self, name: str, entry: T) -> None:
        """Register an entry; a name can be taken only once."""
        if name in self._entries:
            raise ValueError(f"the {self.noun} '{name}' is registered twice")
        self._entries[name] = entry

    def remove(self, name: str) -> None:
        """Take an entry out again."""
        del self._entries[name]

    def all(self) -> dict[str, T]:
        """All entries, in the order in which they were registered."""
        if not self._imported:
            self._imported = True  # first, because the modules may look up entries themselves
            for module in module_names(self.package):
                importlib.import_module(f"{self.package}.{module}")
        return dict(self._entries)

    def find(self, name: str) -> T:
        """The entry called `name`, or an error that names the nearest right one."""
        entries = self.all()
        if name not in entries:
            raise unknown(self.noun, name, entries)
        return entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self.all()


def module_names(package: str) -> list[str]:
    """The modules in the folder of a package of fedquilt, sorted. Nothing is imported."""
    folder = Path(__file__).parents[1].joinpath(*package.split(".")[1:])
    return sorted(module.name for module in pkgutil.iter_modules([str(folder)]))
