"""`fedquilt docs`: the pages of the documentation, as they were when this version was made; nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import results, say
from fedquilt.errors import FedquiltError, unknown

_PACKAGE = Path(__file__).parents[1]
# In an installed package, and beside the source.
PLACES = (_PACKAGE / "pages", _PACKAGE.parents[1] / "docs")
# Folders in the order in which they are listed, with a heading for each.
SECTIONS = {"tutorials": "Tutorials", "how-to": "How to", ".": "Guides and explanation", "results": "Results"}


def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="[PAGE]", help="A page to print; without it, all are listed.")
    ] = None,
) -> None:
    """Read the documentation: list its pages, or print one."""
    found = pages(places())
    if page is None:
        _list(found)
        return
    text = found[resolve(page, found)].read_text(encoding="utf-8")
    console = results()
    if not console.is_terminal:
        say(text.rstrip())
        return
    from rich.markdown import Markdown

    console.print(Markdown(text, hyperlinks=False))


def places() -> Path:
    """The folder with the pages."""
    for place in PLACES:
        if (place / "data.md").is_file():
            return place
    raise FedquiltError("This installation has no pages of the documentation; install fedquilt again.")


def pages(folder: Path) -> dict[str, Path]:
    """The pages of a folder by name: its path without .md, or the folder's own for a README."""
    found = {}
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).with_suffix("")
        if name.parts[0] not in ("reference", "hooks") and not name.match("results/studies/*/*"):
            found[(name.parent if name.name == "README" else name).as_posix()] = path
    return found


def resolve(page: str, found: dict[str, Path]) -> str:
    """The full name of a page: `slurm` is how-to/slurm."""
    wanted = page.removesuffix(".md").removeprefix("docs/")
    if wanted in found:
        return wanted
    short = {name.rpartition("/")[2]: name for name in found}
    if wanted in short:
        return short[wanted]
    raise unknown("page", page, short)


def title(path: Path) -> str:
    """The heading of a page."""
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def _list(found: dict[str, Path]) -> None:
    from rich.table import Table

    table = Table(title="Pages; print one with 'fedquilt docs PAGE'", title_justify="left", title_style="bold")
    table.add_column("Page")
    table.add_column("About")
    for folder in SECTIONS:
        names = [name for name in found if (Path(name).parts[0] if "/" in name else ".") == folder]
        for position, name in enumerate(names):
            table.add_row(name, title(found[name]), end_section=position == len(names) - 1)
    results().print(table)
