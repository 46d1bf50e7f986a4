"""Every third-party package that the source imports, at the top of a module or inside a function, is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Names of imports that differ from the name of the distribution.
DISTRIBUTIONS = {
    "dp_accounting": "dp-accounting",
    "mlflow": "mlflow-skinny",
    "sklearn": "scikit-learn",
    "torch_geometric": "torch-geometric",
    "triton": "torch",  # comes with PyTorch for CUDA, and is only used there
    "yaml": "pyyaml",
}


def imported(path: Path) -> set[str]:
    """The first parts of all names that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def names(requirements: list[str]) -> set[str]:
    """The names of distributions in requirements such as ``torch>=2.6``."""
    return {re.split(r"[^\w.-]", text, maxsplit=1)[0].lower() for text in requirements}


def test_every_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: names(listed) for name, listed in project["optional-dependencies"].items() if name != "dev"}
    declared = names(project["dependencies"]).union(*extras.values())
    missing = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for name in imported(path) - sys.stdlib_module_names - {"fedquilt"}:
            if DISTRIBUTIONS.get(name, name) not in declared:
                missing[str(path.relative_to(ROOT))] = name
    assert missing == {}


def test_flower_brings_all_that_the_federation_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    flower = names(project["dependencies"]) | names(project["optional-dependencies"]["flower"])
    used = set().union(*(imported(path) for path in (ROOT / "src/fedquilt/federation").rglob("*.py")))
    third_party = used - sys.stdlib_module_names - {"fedquilt"}
    assert {DISTRIBUTIONS.get(name, name) for name in third_party} <= flower
