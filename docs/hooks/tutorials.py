"""Scripts of examples/ on the pages that show them: the script as it is, and what it prints.

A page names a script in a comment; the code block after it is the script, and the block after `<!-- prints -->` is its output:

    <!-- examples/compare.py -->
    ```python
    ...
    ```
    <!-- prints -->
    ```text
    ...
    ```

`make tutorials` runs all scripts and writes both blocks anew; the tests run them too, and compare.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SHOWN = re.compile(
    r"<!-- (?P<script>examples/\S+\.py) -->\n```python\n(?P<code>.*?)```\n"
    r"(?P<between>.*?)<!-- prints -->\n```text\n(?P<output>.*?)```\n",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class Shown:
    """A script on a page: its path, the code and the output as the page has them."""

    page: Path
    script: Path
    code: str
    output: str


def pages() -> list[Path]:
    """README.md and all pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(page: Path) -> list[Shown]:
    """The scripts that a page shows."""
    text = page.read_text(encoding="utf-8")
    return [Shown(page, ROOT / found["script"], found["code"], found["output"]) for found in _SHOWN.finditer(text)]


def run_script(script: Path, folder: Path, *arguments: str) -> str:
    """What a script prints on stdout, run in `folder` as `python script arguments...`."""
    printed = io.StringIO()
    with _inside(folder, [str(script), *arguments]), contextlib.redirect_stdout(printed):
        runpy.run_path(str(script), run_name="__main__")
    return printed.getvalue().rstrip() + "\n"


def same_output(first: str, second: str, points: float = 3.0) -> bool:
    """Whether two outputs have the same words, and numbers that differ by rounding of another CPU at most.

    Machines add in another order, and a prediction may flip: metrics in percent may differ by `points`, other numbers by 3 %.
    """
    if _NUMBER.sub("0", _flat(first)) != _NUMBER.sub("0", _flat(second)):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    values = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= max(points, 0.03 * abs(a)) for a, b in values)


def rewrite(page: Path) -> bool:
    """Run the scripts of a page and write code and output anew; whether the page changed."""
    text = page.read_text(encoding="utf-8")

    def anew(found: re.Match[str]) -> str:
        script = ROOT / found["script"]
        with tempfile.TemporaryDirectory() as folder:
            output = run_script(script, Path(folder))
        code = script.read_text(encoding="utf-8")
        if code == found["code"] and same_output(found["output"], output):
            output = found["output"]
        return (
            f"<!-- {found['script']} -->\n```python\n{code}```\n"
            f"{found['between']}<!-- prints -->\n```text\n{output}```\n"
        )

    changed = _SHOWN.sub(anew, text)
    if changed != text:
        page.write_text(changed, encoding="utf-8")
    return changed != text


def _flat(text: str) -> str:
    """Without the widths of a table's columns, which follow its numbers."""
    return re.sub(r"[ ─━]+", " ", text).strip()


@contextlib.contextmanager
def _inside(folder: Path, arguments: list[str]) -> Iterator[None]:
    before, given, path = Path.cwd(), sys.argv, list(sys.path)
    columns = os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = "120"
    sys.argv = arguments
    try:
        yield
    finally:
        os.chdir(before)
        sys.argv, sys.path[:] = given, path
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


def main() -> None:
    """Write all pages anew, or those that are named."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    for page in named or pages():
        if shown(page) and rewrite(page):
            print(f"Written: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
