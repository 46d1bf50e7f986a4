from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import fedquilt
from support.cli import SMALL, interrupt_at, outcome
from support.thoroughness import EPOCHS, NAME, thorough


def test_compare_sets_methods_side_by_side(call: Callable, here: Path) -> None:
    called = call(f"compare --methods majority,local,fedpub {SMALL} --set tau=7 --seeds 0,1")
    assert called.status == 0, called.err
    folder = here / "runs" / "compare-patchwork-disjoint-3"
    for method in ("majority", "local", "fedpub"):
        assert method in called.out
        assert (folder / method / "result.json").is_file()
    assert "±" in called.out
    assert "| **" in (folder / "comparison.md").read_text()
    assert (folder / "convergence.png").read_bytes().startswith(b"\x89PNG")
    # tau went to the one method that has it.
    assert json.loads((folder / "fedpub" / "config.json").read_text())["settings"] == {"hidden": 8, "tau": 7}
    assert json.loads((folder / "local" / "config.json").read_text())["settings"] == {"hidden": 8}
    shown = call("show runs/compare-patchwork-disjoint-3")
    assert "fedpub" in shown.out
    assert (folder / "figures" / "convergence.png").is_file()


def test_json_and_methods_from_a_config_file(call: Callable, here: Path) -> None:
    (here / "plan.yaml").write_text("methods: [majority, local]\nclients: 3\nrounds: 2\n")
    called = call("compare --config plan.yaml --json -q --out out")
    answer = json.loads(called.out)
    assert answer["folder"] == "out"
    assert [result["method"] for result in answer["results"]] == ["majority", "local"]
    assert called.err == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "Say which methods to compare"),
        ("-m local,fedavgg", "There is no method 'fedavgg'; did you mean 'fedavg'?"),
        ("-m local,local", "Method 'local' is listed twice"),
        ("-m local,fedavg --set tua=3", "There is no setting of these methods 'tua'"),
        ("-m majority --set lr=3", "None of these methods has settings"),
        ("-m local,fedpub --set tau=-3", "The setting tau=-3 of method 'fedpub' is not possible"),
        (
            "-m local,fedlit --set model=sage",
            "FedLIT has a graph convolution for each type of links, which model=sage has not",
        ),
        ("-m local --clients 0", "The option clients=0 is not possible"),
    ],
)
def test_what_is_wrong_with_any_method_is_found_before_the_first_trains(
    refused: Callable, options: str, says: str
) -> None:
    assert says in refused(f"compare --rounds 2 {options}")


def test_resume_goes_on_with_what_was_begun_and_starts_what_was_not(
    call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"compare -m local,fedpub,fedavg {SMALL} --checkpoint-every 0 -q"
    assert call(f"{line} --out whole").status == 0
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        called = call(f"{line} --out stopped")
        assert called.status == 130
        assert called.sentence == "stopped; continue with 'fedquilt resume stopped'."
    assert not (here / "stopped" / "fedavg").exists()
    shown = call("show stopped")
    assert "fedpub: Seed 0 is not done: 2 of 3 rounds so far." in shown.out
    called = call("resume stopped -q")
    assert called.status == 0
    assert "fedavg" in called.out
    for method in ("local", "fedpub", "fedavg"):
        assert outcome(here / "stopped" / method) == outcome(here / "whole" / method)


@pytest.mark.parametrize("more", ["", "--epochs 2"])
def test_methods_with_epochs_of_their_own_keep_them_when_resumed_and_run_again(
    call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    line = f"compare -m fedavg,{NAME},local {SMALL} --checkpoint-every 0 -q {more}"
    with thorough():
        assert call(f"{line} --out whole").status == 0
        with monkeypatch.context() as patch:
            interrupt_at(patch, 1, "fedavg")  # so that one is resumed and two are started
            assert call(f"{line} --out stopped").status == 130
        assert call("resume stopped -q").status == 0
        for method in ("fedavg", NAME, "local"):
            config = json.loads((here / "whole" / method / "config.json").read_text())
            epochs = config["resolved"]["settings"]["epochs"]
            assert config["epochs"] == epochs == (2 if more else EPOCHS if method == NAME else 1)
            assert call(f"run --config whole/{method}/config.json --out again/{method} -q").status == 0
            for folder in ("stopped", "again"):
                assert outcome(here / folder / method) == outcome(here / "whole" / method)


def test_a_comparison_made_from_python_is_resumed_and_shown_too(call: Callable, here: Path) -> None:
    runs = fedquilt.compare(["majority", "local"], clients=3, rounds=2, settings={"hidden": 8}, out="out")
    assert call("compare -m majority,local --clients 3 --rounds 2 --set hidden=8 -o command -q").status == 0
    assert {path.name for path in (here / "out").iterdir()} == {path.name for path in (here / "command").iterdir()}
    called = call("resume out --json -q")
    assert json.loads(called.out)["results"] == [run.result for run in runs]
    (here / "out" / "compare.json").unlink()  # older versions wrote none from Python
    called = call("resume out --json -q")
    assert [result["method"] for result in json.loads(called.out)["results"]] == ["local", "majority"]


def test_a_damaged_compare_json_is_one_sentence(call: Callable, here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "compare.json").write_text("{")
    called = call("resume out")
    assert called.status == 2
    assert "compare.json cannot be read" in called.sentence


def test_a_method_that_fails_is_named_at_the_end_with_status_1_and_the_others_have_a_table(
    call: Callable, here: Path
) -> None:
    called = call("compare -m majority,fedssa --clients 3 --rounds 2 --set filter_lr=1000 --json -q --out out")
    assert called.status == 1
    last = called.err.splitlines()[-1]
    assert last.startswith(
        "fedquilt: 1 of 2 methods failed: fedssa (the table says why); the others are done, and 'fedquilt "
    )
    answer = json.loads(called.out)
    assert [result["test_mean"] is None for result in answer["results"]] == [False, True]
    assert answer["results"][1]["failed"].startswith("Training diverged")
    again = call("resume out -q")
    assert again.status == 1
    assert "majority" in again.out
    assert "failed" in again.out
    shown = call("show out")
    assert shown.status == 0
    assert "failed" in shown.out
    assert call("report out").status == 0
    assert "fedssa failed: Training diverged" in (here / "out" / "report.html").read_text()
    every = call("compare -m fedssa --clients 3 --rounds 2 --set filter_lr=1000 -q --out none")
    assert every.status == 2
    assert every.err.splitlines()[-1].startswith("fedquilt: Training diverged")
