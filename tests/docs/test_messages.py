"""No message names a file that an installed package lacks: it names a command, such as `fedquilt docs data`."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import fedquilt
from fedquilt.cli.docs import pages, resolve
from support.pages import ROOT

SOURCE = Path(fedquilt.__file__).parent
OF_THE_SOURCE = re.compile(
    r"\bdocs/[\w-]+|\b(README|CONTRIBUTING|SECURITY|CHANGELOG)(\.md)?\b|\bmake (demo|test|docs|install|lint)\b|\bbenchmarks/\w"
)
NAMED = re.compile(r"fedquilt docs ([a-z][a-z-]+)")
# What writes docs/options.md, for those who work on fedquilt.
WRITERS = {"runs/option_files.py", "cli/docs.py"}


@functools.cache
def strings() -> list[tuple[str, str]]:
    """All texts of the package's modules: messages, help texts and docstrings, each with its file."""
    found = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append((name, node.value))
    for path in [*SOURCE.rglob("*.yaml"), *SOURCE.rglob("*.toml"), *SOURCE.rglob("*.conf")]:
        found.append((path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")))
    return found


def test_no_text_names_a_file_that_a_wheel_lacks() -> None:
    wrong = [
        f"{name}: {found[0]!r} in {text.strip()[:90]!r}"
        for name, text in strings()
        if name not in WRITERS
        for found in [OF_THE_SOURCE.search(text)]
        if found
    ]
    assert wrong == []


def test_every_page_that_a_text_names_is_there() -> None:
    known = pages(ROOT / "docs")
    named = {page for _, text in strings() for page in NAMED.findall(text)}
    assert {"sites", "privacy", "federation"} <= named
    for page in named:
        resolve(page, known)
