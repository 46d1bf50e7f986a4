"""Write a study's report in all formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedquilt.common.files import write_text
from fedquilt.common.new_folder import sweep_files_of_the_dead
from fedquilt.reports.page.build import write_page
from fedquilt.studies.formats import to_csv, to_latex, to_markdown
from fedquilt.studies.pages import page_of
from fedquilt.studies.summary import Summary


def write_report(summary: Summary, command: str, folder: Path, figures: Sequence[Path] = ()) -> list[Path]:
    """Write report.md, report.csv, report.tex and report.html to `folder`; the Markdown shows the `figures` that are SVG files.

    Returns the paths of the files, the page last. `command` runs the study again.
    """
    shown = [path.relative_to(folder).as_posix() for path in figures if path.suffix == ".svg"]
    texts = {
        "report.md": to_markdown(summary, command, shown),
        "report.csv": to_csv(summary),
        "report.tex": to_latex(summary),
    }
    for place in (folder, *(path.parent for path in figures[:1])):
        sweep_files_of_the_dead(place)
    for file, text in texts.items():
        write_text(folder / file, text)
    write_page(page_of(summary, command), folder / "report.html")
    return [folder / file for file in (*texts, "report.html")]
