"""A study's report: gathered from what is kept, and written in all its forms."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedquilt.common.files import write_text
from fedquilt.reports.page.build import write_page
from fedquilt.studies.cells import Missing, absent_graph, expand, with_others
from fedquilt.studies.pages import page_of
from fedquilt.studies.published import read_published, within
from fedquilt.studies.selection import place
from fedquilt.studies.spec import find_study
from fedquilt.studies.store import CellStore
from fedquilt.studies.summary import Summary, summarise
from fedquilt.studies.writing import to_csv, to_latex, to_markdown

Only = Mapping[str, Sequence[str]]


def gather(
    name: str, into: Path, only: Only | None = None, seeds: int | None = None, data: str | None = None
) -> Summary:
    """What came of a study so far. No graph is needed for what is done; `seeds`: by default as many as were begun."""
    study = with_others(find_study(name)).only(only or {})
    keeping = CellStore(into)
    found = keeping.by_identity()
    cells, missing = expand(study, seeds, data, graphs=False)
    if seeds is None:
        begun = max((cell.seed + 1 for cell in cells if cell.identity in found), default=study.seeds)
        cells = [cell for cell in cells if cell.seed < begun]
    known = {place(cell) for cell in cells if cell.identity in found} | {tuple(one.at.values()) for one in missing}
    for at in study.places():
        if tuple(at.values()) not in known and (why := absent_graph(study.options_at(at), data)) is not None:
            missing.append(Missing(at, why))
    return summarise(study, cells, missing, within(study, read_published(find_study(name), name)), keeping)


def command_of(name: str, only: Only | None, seeds: int | None) -> str:
    """The command that runs this part of a study."""
    parts = [f"fedquilt study run {name}"]
    if only:
        wanted = ",".join(f"{axis}={','.join(levels)}" for axis, levels in only.items())
        parts.append(f"--only {shlex.quote(wanted)}")
    if seeds is not None:
        parts.append(f"--seeds {seeds}")
    return " ".join(parts)


def write_report(summary: Summary, command: str, folder: Path, figures: Sequence[Path] = ()) -> list[Path]:
    """report.md, report.csv, report.tex and report.html in `folder`; the Markdown shows those `figures` that are SVG files."""
    shown = [path.relative_to(folder).as_posix() for path in figures if path.suffix == ".svg"]
    texts = {
        "report.md": to_markdown(summary, command, shown),
        "report.csv": to_csv(summary),
        "report.tex": to_latex(summary),
    }
    for file, text in texts.items():
        write_text(folder / file, text)
    write_page(page_of(summary, command), folder / "report.html")
    return [folder / file for file in (*texts, "report.html")]
