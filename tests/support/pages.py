"""The documentation as the tests read it: its pages, their code blocks, and the hooks that build the site."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def hook(name: str) -> ModuleType:
    """A module of docs/hooks."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def all_pages() -> list[Path]:
    """The pages of docs/, and those beside it."""
    return [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    """The fenced blocks of Python on a page."""
    return [found[3] for found in _FENCED.finditer(page.read_text(encoding="utf-8")) if found[2] == "python"]


def commands(page: Path, program: str = "fedquilt") -> Iterator[str]:
    """The command lines of a page that call `program`, in code blocks; continued lines are joined."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = [
        line
        for found in _FENCED.finditer(text)
        if found[2] in ("", "bash", "sh", "text")
        for line in found[3].splitlines()
    ]
    indented = [line for line in _FENCED.sub("", text).splitlines() if line.startswith("    ")]
    for line in (*fenced, *indented):
        found = re.match(rf"^\s*(?:\$ |exec |[A-Z_]+=\S+ )*({program} [^│]*)", line)
        if found:
            yield re.sub(r"\s+#.*$", "", found[1]).rstrip(" &")
