from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fedquilt.common import registry as registries
from fedquilt.common.registry import (
    BUILT_IN,
    Registry,
    known_plugins,
    load_plugins,
    loaded_plugins,
    module_names,
    plugin_entries,
)
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import METHODS, find_method
from support.plugins import METHOD, forget


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
    monkeypatch.setattr(registries, "_looked", True)
    monkeypatch.setattr("importlib.import_module", imported.append)
    registry: Registry[int] = Registry("number", "fedquilt.partition.kinds")
    assert imported == []
    assert "two" not in registry
    assert imported == [f"fedquilt.partition.kinds.{name}" for name in module_names("fedquilt.partition.kinds")]


def test_module_names_are_the_files_of_a_folder() -> None:
    assert "registry" in module_names("fedquilt.common")
    assert "__init__" not in module_names("fedquilt.common")
    assert module_names("fedquilt.nowhere") == []


@pytest.fixture
def file(tmp_path: Path, no_plugins: None) -> Path:
    (tmp_path / "half.py").write_text(METHOD)
    return tmp_path / "half.py"


def test_a_plugin_registers_entries_that_say_where_they_come_from(file: Path) -> None:
    assert load_plugins([file], named=True) == loaded_plugins() == [str(file)]
    assert find_method("half").title == "Half"
    assert METHODS.origin("half") == "half.py"
    assert METHODS.origin("fedavg") == BUILT_IN
    assert plugin_entries()["half.py"] == ["method half"]


def test_a_plugin_is_loaded_once_and_again_when_it_changed(file: Path) -> None:
    load_plugins([file], named=True)
    first = find_method("half")
    load_plugins([file], named=True)
    assert find_method("half") is first
    file.write_text(METHOD.replace('"Half"', '"Other"').replace('register("half")', 'register("other")'))
    load_plugins([file], named=True)
    assert find_method("other").title == "Other"
    assert "half" not in METHODS


def test_a_plugin_that_fails_or_clashes_leaves_nothing(file: Path) -> None:
    file.write_text(METHOD + "\nundefined\n")
    with pytest.raises(FedquiltError, match=r"half\.py cannot be loaded: line 18: NameError"):
        load_plugins([file], named=True)
    assert "half" not in METHODS
    file.write_text(METHOD.replace('register("half")', 'register("fedavg")'))
    with pytest.raises(
        FedquiltError,
        match="line 10: the method 'fedavg' is registered twice: it is built in already; choose another name",
    ):
        load_plugins([file], named=True)
    assert METHODS.origin("fedavg") == BUILT_IN
    file.write_text("x = 1\n")
    with pytest.raises(FedquiltError, match=r"half\.py registers nothing"):
        load_plugins([file], named=True)
    assert loaded_plugins() == []


def test_two_plugins_cannot_take_the_same_name(file: Path, tmp_path: Path) -> None:
    load_plugins([file], named=True)
    (tmp_path / "again.py").write_text(METHOD)
    with pytest.raises(FedquiltError, match=r"'half' is registered twice: it is from half\.py already"):
        load_plugins([tmp_path / "again.py"], named=True)
    assert METHODS.origin("half") == "half.py"


def test_a_file_that_nobody_named_is_not_executed(file: Path) -> None:
    file.write_text(METHOD + "\nraise AssertionError\n")
    with pytest.raises(FedquiltError, match=r"half\.py was not executed, as you never ran it with this content"):
        load_plugins([str(file)], named=False)
    assert known_plugins([str(file), "nowhere.py", 3]) == []
    file.write_text(METHOD)
    load_plugins([file], named=True)
    forget()
    assert known_plugins([str(file)]) == [str(file)]
    load_plugins([str(file)], named=False)  # it was named before
    assert "half" in METHODS


def test_the_environment_names_plugins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registries.PLUGINS, str(file))
    monkeypatch.setattr(registries, "_looked", False)
    assert "half" in METHODS


def test_installed_packages_are_loaded_and_a_broken_one_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, no_plugins: None
) -> None:
    (tmp_path / "package_of_mine.py").write_text(METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("mine", "package_of_mine", registries.GROUP),
        EntryPoint("bad", "no_package", registries.GROUP),
    ]
    monkeypatch.setattr(registries, "entry_points", lambda group: [p for p in points if p.group == group])
    monkeypatch.setattr(registries, "_looked", False)
    with caplog.at_level(logging.WARNING):
        assert METHODS.find("half")
    assert METHODS.origin("half") == "package_of_mine"
    assert "The installed plug-in bad (no_package) cannot be loaded: ModuleNotFoundError" in caplog.text
    METHODS.remove("half")


def test_a_cell_of_a_notebook_may_be_run_again() -> None:
    numbers: Registry[int] = Registry("number", "fedquilt.common")
    for value in (1, 2):
        exec("numbers.add('one', value)", {"__name__": "__main__", "numbers": numbers, "value": value})
    assert numbers.find("one") == 2
