"""`fedquilt report`: a run, a comparison or a study as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli.console import say
from fedquilt.cli.targets import check_target
from fedquilt.errors import FedquiltError

if TYPE_CHECKING:
    from fedquilt.reports.page.data import Page

ENDINGS = (".html", ".htm")


def report(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR|STUDY...",
            help="A run's folder, finished or still running, a comparison's, or a study's name; or several folders, which are "
            "put side by side in one page.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The file to write. Default: DIR/report.html, of a study STUDY/report.html in --into, of several folders "
            "report.html here.",
        ),
    ] = None,
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="The folder in which studies live.")] = Path(
        "studies"
    ),
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write one HTML file with the tables and charts of a run, a comparison or a study.

    Tables, convergence, which clients resemble each other, how each fares,
    bytes by name, time by phase, who holds which classes, all settings, and
    the command to run it again. The file needs no network and nothing beside
    it: send it to someone, or print it. It is written anew each time.
    """
    check_target(out, ENDINGS, force=True)
    folders = [Path(target) for target in targets]
    from fedquilt.reports.page.build import write_page
    from fedquilt.reports.page.run_pages import page_of_folders

    if all(folder.is_dir() for folder in folders):
        page, place = page_of_folders(folders), folders[0] if len(folders) == 1 else Path()
    elif len(targets) == 1:
        page, place = _of_study(targets[0], into), into / folders[0].stem
    else:
        missing = next(folder for folder in folders if not folder.is_dir())
        raise FedquiltError(f"There is no run folder {missing}; only folders can be put side by side.")

    path = out or place / "report.html"
    write_page(page, path)
    say(str(path))
    if show:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _of_study(name: str, into: Path) -> Page:
    """Return the page of a study; raise an error if the name is neither a study nor a study file."""
    from fedquilt.studies.catalogue_files import study_names

    if name not in study_names() and not Path(name).is_file():
        raise FedquiltError(f"There is no run folder and no study '{name}'; see 'fedquilt study list'.")
    from fedquilt.studies.pages import study_page

    return study_page(name, into)
