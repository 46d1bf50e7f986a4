"""Tests mirror the package: the tests of src/fedquilt/a/b.py are in tests/a/test_b.py, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import fedquilt

SOURCE = Path(fedquilt.__file__).parent
TESTS = Path(__file__).parent
# Tests of several modules together, of the docs, of what measures and attacks ourselves; and what several tests share.
APART = {"integration", "docs", "benchmarks", "fuzz", "support"}
# Tests of the whole package.
OF_ALL = {"test_mirror.py", "test_import_order.py", "test_dependencies.py"}


def modules() -> set[str]:
    paths = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    return {
        path.as_posix() for path in paths if not path.name.startswith("__") and path.parts[:2] != ("federation", "app")
    }


def mirrored() -> set[str]:
    paths = (path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
    return {
        path.with_name(path.name.removeprefix("test_")).as_posix()
        for path in paths
        if path.parts[0] not in APART and path.as_posix() not in OF_ALL
    }


def test_every_module_has_a_test_file_of_its_own() -> None:
    assert sorted(modules() - mirrored()) == []


def test_every_test_file_is_named_after_a_module() -> None:
    packages = {path.parent.relative_to(SOURCE).as_posix() + ".py" for path in SOURCE.rglob("__init__.py")}
    assert sorted(mirrored() - modules() - packages) == []
