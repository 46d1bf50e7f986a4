"""`fedquilt study`: list, show, run and report."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedquilt.cli.study import parse_only
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import methods
from fedquilt.studies import plan, runner, workers
from fedquilt.studies.catalogue_files import study_names
from fedquilt.studies.cells import Cell, Missing
from support.tiny_studies import PUBLISHED, Inline, no_network, write_study


@pytest.fixture
def tiny(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A study here, workers in this process, and no network."""
    monkeypatch.setattr(workers, "WorkerProcess", Inline)
    no_network(monkeypatch)
    write_study(here, published=PUBLISHED, seeds=1)
    return "tiny.yaml"


# -- list and show -----------------------------------------------------------------------------------


def test_list_names_every_study(call: Callable) -> None:
    called = call("study list")
    assert called.status == 0
    assert len(study_names()) > 60
    for name in study_names():
        assert name in called.out, name
    pub = call("study list fedpub").out
    assert "fedpub-table-1" in pub
    assert "fediih" not in pub


def test_list_of_nobody_is_refused(refused: Callable) -> None:
    says = "There are no studies of 'fedfoo'; there are some of fedpub, fedsheafhn, fedhero, fediih, fedssa, conditions, quilt."
    assert refused("study list fedfoo") == says


def test_show_says_what_would_be_run_and_what_is_done(call: Callable, tiny: str) -> None:
    called = call(f"study show {tiny}")
    assert called.status == 0, called.err
    assert called.out.startswith("Tiny, Table 1: three methods\nThe paper says: Nobody claims anything.\n")
    assert "Local, FedAvg, FED-PUB" in called.out
    assert "6 cells with 1 seeds, of which 0 are done; 3 published numbers." in called.out
    assert call(f"study run {tiny} -q --device cpu --only method=local").status == 0
    assert "2 cells with 1 seeds, of which 2 are done" in call(f"study show {tiny} --only method=LOCAL").out
    assert "6 cells with 1 seeds, of which 2 are done" in call(f"study show {tiny}").out


def test_show_names_what_is_missing(call: Callable, here: Path, tiny: str) -> None:
    write_study(
        here, "gone", axes={"method": ["local", "tomorrows"], "dataset": ["cora", "patchwork"]}, columns=["dataset"]
    )
    called = call("study show gone.yaml")
    assert called.status == 0, called.err
    assert "methods that are not in fedquilt yet (tomorrows)" in called.out
    assert "cora" in called.out.partition("cells with")[2]


# -- run and report ----------------------------------------------------------------------------------


def test_run_runs_reports_and_goes_on(call: Callable, here: Path, tiny: str) -> None:
    called = call(f"study run {tiny} --device cpu --into kept --only clients=2")
    assert called.status == 0, called.err
    assert "0 of 3 cells done" in called.err
    assert "3 of 3 cells done" in called.err
    assert "FED-PUB" in called.out
    assert "▼" in called.out  # FED-PUB does not reach what is printed
    assert "fedquilt: " not in called.err
    files = {path.name for path in (here / "kept" / "tiny").iterdir()}
    assert files >= {"report.md", "report.csv", "report.tex", "report.html"}
    assert "fedquilt study run tiny.yaml --only clients=2\n" in (here / "kept" / "tiny" / "report.md").read_text()
    whole = call(f"study run {tiny} --device cpu --into kept")
    assert whole.status == 0
    assert "3 of 6 cells done" in whole.err
    lines = list(csv.DictReader((here / "kept" / "tiny" / "report.csv").read_text().splitlines()))
    assert len(lines) == 6
    assert all(line["mean"] for line in lines)
    assert not list((here / "kept").rglob("*.safetensors"))
    for path in (here / "kept" / "tiny").glob("report.*"):
        assert str(here) not in path.read_text(encoding="utf-8")
    again = call(f"study report {tiny} --into kept --only clients=3 --seeds 1")
    assert again.status == 0
    assert "--only clients=3 --seeds 1" in (here / "kept" / "tiny" / "report.md").read_text()


def test_run_expands_the_study_once_and_its_report_has_the_same_cells(
    call: Callable, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expanded: list[list[Cell]] = []
    whole = plan.expand

    def expand(*args: Any) -> tuple[list[Cell], list[Missing]]:
        cells, missing = whole(*args)
        expanded.append(cells)
        return cells, missing

    monkeypatch.setattr(plan, "expand", expand)
    assert call(f"study run {tiny} -q --device cpu --only method=local").status == 0
    assert [len(cells) for cells in expanded] == [2]


def test_run_keeps_models_where_it_is_told(call: Callable, here: Path, tiny: str) -> None:
    assert call(f"study run {tiny} -q --device cpu --only method=local,clients=2 --keep-models").status == 0
    assert list((here / "studies").rglob("models.safetensors"))


def test_what_fails_is_told_and_the_rest_is_there(call: Callable, here: Path, tiny: str) -> None:
    methods = [{"label": "Local", "method": "local"}, {"label": "Wild", "method": "fedavg", "settings": {"lr": 1e30}}]
    write_study(here, "wild", axes={"method": methods, "clients": [2]}, seeds=1)
    called = call("study run wild.yaml --device cpu")
    assert called.status == 1
    assert "Wild, 2, seed 0: failed in" in called.err
    assert "1 of 2 cells done, 1 failed" in called.err
    assert "Failed: Wild, 2, seed 0: Training diverged" in " ".join(called.out.split())


def test_a_study_that_measures_time_runs_one_cell_at_a_time(
    call: Callable, here: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []
    monkeypatch.setattr(runner, "run_studies", lambda *args: jobs.append(args[2]))
    write_study(here, "timed", alone=True)
    assert "one cell runs at a time" in call("study run timed.yaml --jobs 4").err
    assert "one cell runs at a time" not in call(f"study run {tiny} --jobs 4").err
    assert jobs == [1, 4]
    call(f"study run timed.yaml {tiny} --jobs 4")
    assert jobs == [1, 4, 4, 1]  # those that do not measure time first


def test_several_studies_are_run_as_one_and_reported_apart(call: Callable, here: Path, tiny: str) -> None:
    write_study(here, "other", seeds=1)
    called = call(f"study run {tiny} other.yaml --device cpu --only method=local")
    assert called.status == 0, called.err
    assert "2 of 2 cells done" in called.err  # which they have in common
    assert (here / "studies" / "tiny" / "report.md").is_file()
    assert (here / "studies" / "other" / "report.md").is_file()
    refused = call(f"study run {tiny} nowhere.yaml --device cpu")
    assert refused.status == 2
    assert "nowhere" in refused.err


def test_no_cell_is_started_after_so_many_minutes(call: Callable, here: Path, tiny: str) -> None:
    called = call(f"study run {tiny} --device cpu --minutes 0")
    assert called.status == 0, called.err
    assert "Nothing of tiny.yaml was run in 0 minutes; run the same command again to go on." in " ".join(
        called.err.split()
    )
    assert not list((here / "studies").rglob("cell.json"))
    assert call(f"study run {tiny} -q --device cpu --minutes 60").status == 0
    assert list((here / "studies").rglob("cell.json"))


def test_ctrl_c_says_how_to_go_on(call: Callable, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_studies", stopped)
    called = call(f"study run {tiny}")
    assert called.status == 130
    assert called.sentence == "stopped; run the same command again to go on."


def test_a_share_of_the_cells_and_what_is_stale(
    call: Callable, refused: Callable, here: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = [call(f"study run {tiny} -q --device cpu --share {part}/2").status for part in (1, 2)]
    assert ran == [0, 0]
    assert "6 cells with 1 seeds, of which 6 are done; 3" in call(f"study show {tiny}").out
    assert "A share is written like 2/4" in refused(f"study run {tiny} --share 3/2")
    assert refused(f"study run {tiny} --stale") == "Nothing of tiny.yaml is stale, so there is nothing to run."
    monkeypatch.setattr(methods()["fedpub"], "compute_version", 2)
    shown = call(f"study show {tiny}").out
    assert "6 cells with 1 seeds, of which 6 are done" in shown
    assert "2 of those that are done are stale" in shown
    assert "2 of 6 runs are stale (†)" in call(f"study report {tiny}").out
    again = call(f"study run {tiny} --stale --device cpu")
    assert again.status == 0, again.err
    assert "0 of 2 cells done" in again.err
    assert "stale" not in call(f"study show {tiny}").out
    assert "All runs were computed by the installed code (" in call(f"study report {tiny}").out


# -- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "run", "report"])
@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("fedpub-tabel-1", "There is no study 'fedpub-tabel-1'; did you mean 'fedpub-table-1'?"),
        ("nothing.yaml", "The config file nothing.yaml cannot be read: No such file or directory."),
        ("tiny.yaml --only metod=local", "There is no axis of tiny 'metod'; did you mean 'method'?"),
        ("tiny.yaml --only method=locla", "There is no method of tiny 'locla'; did you mean 'Local'?"),
        ("tiny.yaml --only local", "--only local is not of the form axis=level, such as dataset=cora,clients=10."),
        ("tiny.yaml --only method=", "--only method= is not of the form axis=level, such as dataset=cora,clients=10."),
        ("tiny.yaml --only =local", "--only =local is not of the form axis=level, such as dataset=cora,clients=10."),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    refused: Callable, tiny: str, command: str, rest: str, says: str
) -> None:
    assert refused(f"study {command} {rest}") == says


@pytest.mark.parametrize("line", ["--seeds 0", "--seeds many", "--jobs 0", "--colour red"])
def test_options_of_the_wrong_kind_are_refused(refused: Callable, tiny: str, line: str) -> None:
    assert line.split()[0] in refused(f"study run {tiny} {line}")


def test_a_device_that_is_not_there_is_refused_before_anything_is_run(refused: Callable, tiny: str) -> None:
    assert "cdua" in refused(f"study run {tiny} --device cdua")


def test_report_before_run_says_how_to_run_it(refused: Callable, tiny: str) -> None:
    says = "Nothing of tiny.yaml has been run in studies; run it with 'fedquilt study run tiny.yaml'."
    assert refused(f"study report {tiny}") == says


def test_a_study_of_which_no_graph_is_here_is_refused(call: Callable, here: Path, tiny: str) -> None:
    write_study(here, "gone", axes={"method": ["local"], "dataset": ["cora"]}, columns=["dataset"])
    before = sorted(here.rglob("*"))
    called = call("study run gone.yaml")
    assert called.status == 2
    assert called.out == ""
    lines = called.err.splitlines()
    assert len(lines) == 2
    assert "cora" in lines[0]
    assert lines[1] == "fedquilt: Nothing of gone.yaml can be run here; see 'fedquilt study show gone.yaml'."
    assert sorted(here.rglob("*")) == before


def test_into_a_file_is_refused(refused: Callable, here: Path, tiny: str) -> None:
    (here / "taken").write_text("mine")
    for command in ("run", "report", "show"):
        sentence = refused(f"study {command} {tiny} --into taken")
        assert "--into" in sentence
        assert "is a file" in sentence


def test_a_damaged_cell_is_one_sentence(call: Callable, refused: Callable, here: Path, tiny: str) -> None:
    assert call(f"study run {tiny} -q --device cpu --only method=local,clients=2").status == 0
    (cell,) = (here / "studies").glob("cells/*/cell.json")
    cell.write_text("{")
    folder = cell.parent.relative_to(here)
    assert refused(f"study report {tiny}") == f"{folder}/cell.json is damaged; delete {folder} and run the study again."


# -- --only --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], {}),
        (["a=1"], {"a": ["1"]}),
        (["a=1,2,b=3"], {"a": ["1", "2"], "b": ["3"]}),
        (["a=1", "a=2", "b= x y "], {"a": ["1", "2"], "b": ["x y"]}),
        (["variant=lambda=0", "variant=mu=1"], {"variant": ["lambda=0", "mu=1"]}),
    ],
)
def test_only_is_levels_by_axis(given: list[str], wanted: dict[str, list[str]]) -> None:
    assert parse_only(given) == wanted


@pytest.mark.parametrize("given", ["1", "", "a=1,", ",a=1", "a="])
def test_only_that_is_no_axis_and_level_is_refused(given: str) -> None:
    with pytest.raises(FedquiltError, match="is not of the form axis=level"):
        parse_only([given])
