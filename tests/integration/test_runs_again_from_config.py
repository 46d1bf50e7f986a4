"""A run folder can be run again from its own config.json, wherever its graph came from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from fedquilt.runs.compare import Comparison
from fedquilt.runs.config import GIVEN, GRAPH_FILE
from support.cli import outcome
from support.small_runs import SMALL, own_graph, stop_after


def test_a_run_of_a_graph_from_python_is_run_again_from_its_config(call: Callable, here: Path) -> None:
    run = fedquilt.run("fedavg", own_graph(), out="first", **SMALL)
    config = json.loads((here / "first" / "config.json").read_text())
    assert config["dataset"] == str(here / "first" / GRAPH_FILE)
    called = call("run --config first/config.json --out again --json -q")
    assert called.status == 0, called.err
    assert outcome(here / "again") == outcome(here / "first")
    assert json.loads(called.out)["dataset"] == run.result["dataset"] == "mine"
    # The second run refers to the copy of the first.
    assert json.loads((here / "again" / "config.json").read_text())["dataset"] == config["dataset"]


def test_a_folder_that_was_moved_is_resumed_and_run_again(call: Callable, here: Path) -> None:
    options = SMALL | {"checkpoint_seconds": 0.0}
    whole = fedquilt.run("fedavg", own_graph(), out="whole", **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedavg", own_graph(), out="first", watch=stop_after(0, 1), **options)
    shutil.move("first", "moved")
    assert call("resume moved -q").status == 0
    assert outcome(here / "moved") == outcome(here / "whole")
    assert call("run --config moved/config.json --out again -q").status == 0
    assert outcome(here / "again")[0] == outcome(here / "whole")[0]
    assert fedquilt.load_run("moved", device="cpu").result["test_mean"] == whole.result["test_mean"]


@pytest.mark.parametrize("dataset", [GIVEN, GRAPH_FILE])
def test_folders_of_older_versions_still_resume_run_again_and_report(call: Callable, here: Path, dataset: str) -> None:
    fedquilt.run("fedavg", own_graph(), out="old", **SMALL)
    config = json.loads((here / "old" / "config.json").read_text()) | {"dataset": dataset}
    (here / "old" / "config.json").write_text(json.dumps(config))
    assert call("resume old -q").status == 0
    assert call("run --config old/config.json --out again -q").status == 0
    assert outcome(here / "again") == outcome(here / "old")
    assert call("report old").status == 0
    page = (here / "old" / "report.html").read_text()
    assert "--dataset @given" not in page
    assert f"--dataset {here / 'old' / GRAPH_FILE}" in page


def test_a_comparison_of_a_graph_from_python_is_resumed_after_it_was_moved(call: Callable, here: Path) -> None:
    options = SMALL | {"checkpoint_seconds": 0.0}
    whole = fedquilt.compare(["local", "fedavg"], own_graph(), out="whole", **options)
    assert sorted(path.name for path in (here / "whole").glob("*.*")) == [
        *(".lock", "compare.json", "comparison.md", "convergence.png", GRAPH_FILE, "seal.json"),
    ]
    with pytest.raises(KeyboardInterrupt):
        fedquilt.compare(["local", "fedavg"], own_graph(), out="first", watch=stop_after(0, 1), **options)
    assert not (here / "first" / "fedavg").exists()
    shutil.move("first", "moved")
    assert [config.dataset for config in Comparison.open(here / "moved").configs] == [
        str(here / "moved" / GRAPH_FILE)
    ] * 2
    assert call("resume moved -q").status == 0
    for run in whole:
        method = run.result["method"]
        assert outcome(here / "moved" / method) == outcome(here / "whole" / method)
    assert (here / "moved" / "comparison.md").is_file()
    # A run of a comparison refers to the copy of the comparison.
    assert call("run --config moved/local/config.json --out again -q").status == 0
    assert outcome(here / "again") == outcome(here / "whole" / "local")
