from __future__ import annotations

import json
import subprocess
import sys
import types
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.reports.page.chart_data import read_page_run
from fedquilt.reports.page.data import Page
from support.cli import SMALL, environment

LINE = f"{SMALL} -q"


def test_report_writes_the_page_of_a_run(call: Callable, here: Path) -> None:
    assert call(f"run -m fedpub {LINE} --out out").status == 0
    called = call("report out")
    assert called.status == 0, called.err
    assert called.out == "out/report.html\n"
    text = (here / "out" / "report.html").read_text(encoding="utf-8")
    assert "<title>fedpub on patchwork, disjoint, 3 clients · fedquilt</title>" in text
    assert str(here) not in text
    assert call("report out").status == 0  # again


def test_report_writes_the_page_of_a_comparison_where_it_is_told(call: Callable, here: Path) -> None:
    assert call(f"compare --methods local,fedavg {LINE} --out cmp").status == 0
    called = call("report cmp --out pages/cmp.html")
    assert called.status == 0, called.err
    assert called.out == "pages/cmp.html\n"
    text = (here / "pages" / "cmp.html").read_text(encoding="utf-8")
    assert "fedquilt compare --methods local,fedavg" in text
    assert not (here / "cmp" / "report.html").exists()


def test_the_command_on_the_page_asks_for_the_same_run(call: Callable, here: Path) -> None:
    line = "--participation 0.5 --eval-every 2 --edge-noise 0.1 --seeds 1,2 --set tau=4 --checkpoint-every 60"
    assert call(f"run -m fedpub {LINE} {line} --out out").status == 0
    command = read_page_run(here / "out", "a", "s").command
    assert call(f"{command.removeprefix('fedquilt ')} -q --out again").status == 0
    first, second = (json.loads((here / name / "config.json").read_text()) for name in ("out", "again"))
    assert first == second


def test_report_opens_the_browser_when_asked(call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert call(f"run -m local {LINE} --out out").status == 0
    assert call("report out").status == 0
    assert opened == []
    assert call("report out --open").status == 0
    assert opened == [(here / "out" / "report.html").as_uri()]


def test_a_run_without_a_round_is_refused_and_an_unfinished_one_says_so(
    call: Callable, refused: Callable, here: Path
) -> None:
    assert call(f"run -m fedavg {LINE} --seeds 0,1 --out out").status == 0
    (here / "out" / "seed-1" / "summary.json").unlink()
    assert call("report out").status == 0
    assert "Seed 1 is not done: 3 of 3 rounds so far." in (here / "out" / "report.html").read_text(encoding="utf-8")
    (here / "out" / "report.html").unlink()
    for seed in (0, 1):
        for file in (here / "out" / f"seed-{seed}").glob("*.json*"):
            file.unlink()
    assert refused("report out").startswith("No round in out has been evaluated yet")


def test_help_has_an_example(call: Callable) -> None:
    called = call("report --help")
    assert called.status == 0
    assert "For example" in called.out
    assert "fedquilt report runs/" in called.out


def test_what_is_neither_a_folder_nor_a_study_is_refused(refused: Callable) -> None:
    assert refused("report xyzzy") == "There is no run folder and no study 'xyzzy'; see 'fedquilt study list'."


def test_report_writes_the_page_of_a_study(call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path]] = []

    def study_page(name: str, into: Path) -> Page:
        asked.append((name, into))
        return Page(f"The study {name}")

    pages = types.ModuleType("fedquilt.studies.pages")
    monkeypatch.setattr(pages, "study_page", study_page, raising=False)
    monkeypatch.setitem(sys.modules, pages.__name__, pages)
    called = call("report fedpub-table-2 --into kept")
    assert called.out == "kept/fedpub-table-2/report.html\n", called.err
    assert asked == [("fedpub-table-2", Path("kept"))]
    assert "The study fedpub-table-2" in (here / "kept" / "fedpub-table-2" / "report.html").read_text(encoding="utf-8")


def test_a_folder_without_runs_and_a_wrong_file_name_are_refused(refused: Callable, here: Path) -> None:
    (here / "empty").mkdir()
    assert refused("report empty") == "empty is not a run folder: it has no config.json."
    assert refused("report empty --out page.pdf") == "'page.pdf' has to end in .html or .htm; rename it."


def test_report_needs_no_torch(call: Callable, here: Path) -> None:
    assert call(f"run -m local {LINE} --out out").status == 0
    script = (
        "import sys; from fedquilt.cli import main\n"
        "status = main(['report', 'out'])\n"
        "heavy = {'torch', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else status)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), cwd=here)
    assert done.returncode == 0, done.stderr
