from __future__ import annotations

import pytest

from fedquilt.common.registry import Registry, module_names
from fedquilt.errors import FedquiltError


def test_entries_are_found_by_name() -> None:
    registry: Registry[int] = Registry("number", "fedquilt.common")
    registry.add("two", 2)
    registry.add("one", 1)
    assert registry.all() == {"two": 2, "one": 1}
    assert list(registry.all()) == ["two", "one"]
    assert registry.find("one") == 1
    assert "two" in registry
    registry.remove("two")
    assert "two" not in registry


def test_a_wrong_name_is_told_the_nearest_right_one() -> None:
    registry: Registry[int] = Registry("number", "fedquilt.common")
    registry.add("three", 3)
    with pytest.raises(FedquiltError, match="There is no number 'tree'; did you mean 'three'"):
        registry.find("tree")


def test_a_name_can_be_taken_once() -> None:
    registry: Registry[int] = Registry("number", "fedquilt.common")
    registry.add("one", 1)
    with pytest.raises(ValueError, match="the number 'one' is registered twice"):
        registry.add("one", 2)


def test_the_modules_of_the_package_are_imported_on_the_first_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr("importlib.import_module", imported.append)
    registry: Registry[int] = Registry("number", "fedquilt.partition.kinds")
    registry.add("one", 1)
    assert imported == []
    assert "one" in registry
    assert "two" not in registry
    assert imported == [f"fedquilt.partition.kinds.{name}" for name in module_names("fedquilt.partition.kinds")]


def test_module_names_are_the_files_of_a_folder() -> None:
    assert "registry" in module_names("fedquilt.common")
    assert "__init__" not in module_names("fedquilt.common")
    assert module_names("fedquilt.nowhere") == []
