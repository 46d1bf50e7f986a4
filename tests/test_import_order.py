"""Imports point one way, and no module imports itself through others: lazy and type-only imports count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import fedquilt

SOURCE = Path(fedquilt.__file__).parent
# From the bottom up: a folder may import from those before it, and from itself.
ORDER = (
    *("errors", "common", "devices", "graphs", "datasets", "partition", "messages", "privacy", "cohort", "tasks", "nn"),
    *("methods", "training", "scenarios", "loggers", "runs", "federation", "export", "reports", "tuning", "studies"),
    *("bench", "api", "cli", "__main__", "fedquilt"),
)


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def folder(module: str) -> str:
    """The folder of a module, or its own name where it lies at the top."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imports() -> dict[str, set[str]]:
    known = modules()
    return {module: set(imported(path, known)) for module, path in known.items()}


def test_every_folder_has_a_place_in_the_order() -> None:
    assert {folder(module) for module in modules()} == set(ORDER)


def test_only_a_few_modules_lie_at_the_top() -> None:
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "api.py", "errors.py"}


def test_imports_point_one_way() -> None:
    place = {name: number for number, name in enumerate(ORDER)}
    wrong = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in sorted(others)
        if place[folder(other)] > place[folder(module)]
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_through_others() -> None:
    # Importing a module runs the packages above it, too; a package that re-exports its own modules is no cycle of ours.
    graph = {module: {other for other in others if other != module} for module, others in imports().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_the_order_is_the_documented_one() -> None:
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = [line.strip(" `|").split("`")[0].rstrip("/") for line in page.splitlines() if line.startswith("| `")]
    assert [name for name in drawn if name in ORDER] == [name for name in ORDER if name in drawn]
    assert {name for name in ORDER if name not in ("__main__", "fedquilt")} <= set(drawn)
