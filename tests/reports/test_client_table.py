"""The table of a run's clients by name, and their names in figures and on the page."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.reports.client_table import client_table
from fedquilt.reports.figures import client_bars_figure, shortened_name
from fedquilt.reports.page.chart_data import read_page_run
from fedquilt.reports.page.payload import payload
from fedquilt.reports.page.run_pages import page_of_run
from fedquilt.reports.read_run import read_run
from support.command_line import Call
from support.hospitals import WARDS, write_hospitals
from support.small_runs import own_graph

SHORT: dict[str, Any] = {"rounds": 1, "device": "cpu", "settings": {"hidden": 8}}


@pytest.fixture
def run_folder(here: Path) -> Path:
    write_hospitals(here)
    fedquilt.run("fedpub", ["hospital-*"], out="out", seeds=[0, 1], **SHORT)
    return here / "out"


def test_a_row_for_each_named_client(run_folder: Path, call: Call) -> None:
    shown = call("show out")
    assert shown.status == 0, shown.err
    run = read_run(run_folder)
    table = client_table(run)
    names, nodes, tests = ([str(cell) for cell in column.cells] for column in table.columns)
    assert (names, nodes) == (list(WARDS), ["40"] * 3)
    mean = sum(seed.summary["clients_test"][1] for seed in run.seeds) / 2
    assert tests[1].startswith(f"{mean:.2f} ± ")
    assert all(name in shown.out for name in WARDS)


def test_clients_without_names_get_no_table(tmp_path: Path) -> None:
    fedquilt.run("local", [own_graph(30), own_graph(40)], out=tmp_path / "out", **SHORT)
    assert client_table(read_run(tmp_path / "out")) is None


def test_names_are_on_the_page_and_its_command_asks_for_the_same_run(run_folder: Path, call: Call) -> None:
    page = json.loads(payload(page_of_run(read_run(run_folder))))
    assert page["runs"][0]["seeds"][0]["names"] == list(WARDS)
    assert page["holdings"][0]["names"] == list(WARDS)
    command = read_page_run(run_folder, "a", "s").command
    assert "@clients" not in command
    assert call(f"{' '.join(shlex.split(command)[1:])} -q --out again").status == 0
    first, second = (json.loads(Path(name, "config.json").read_text()) for name in ("out", "again"))
    assert first == second


def test_names_are_on_the_axes() -> None:
    figure = client_bars_figure([[50.0, 60.0]], names=["St. Anna", "a very long name of a hospital"])
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["St. Anna", "a very long name of…"]
    assert shortened_name("5 $") == r"5 \$"
