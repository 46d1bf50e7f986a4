from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.tuning.storage import CONFIG
from support.cli import SMALL, interrupt_at, outcome, without_seconds


def test_run_writes_a_folder_of_its_own_and_prints_the_table(call: Callable, here: Path) -> None:
    called = call(f"run {SMALL} --seeds 0,1")
    assert called.status == 0, called.err
    folder = here / "runs" / "quilt-patchwork-disjoint-3"
    result = json.loads((folder / "result.json").read_text())
    assert f"{result['test_mean']:.2f} ± {result['test_std']:.2f}" in called.out
    assert "Written to runs/quilt-patchwork-disjoint-3" in called.out
    assert "quilt seed 1: 3 of 3 rounds done" in called.err
    config = json.loads((folder / "config.json").read_text())
    assert config["resolved"]["settings"]["hidden"] == 8
    # The same again goes to a folder of its own.
    assert "runs/quilt-patchwork-disjoint-3-2" in call(f"run {SMALL} --quiet").out


def test_json_is_the_result_and_nothing_else(call: Callable, here: Path) -> None:
    called = call(f"run -m fedavg {SMALL} --out out --json")
    assert json.loads(called.out) == json.loads((here / "out" / "result.json").read_text())
    assert called.out.count("\n") == 1


def test_quiet_shows_no_progress(call: Callable) -> None:
    called = call(f"run -m local {SMALL} --out out --quiet")
    assert called.err == ""
    assert "Written to out" in called.out


def test_options_go_over_the_config_file_and_set_over_its_settings(call: Callable, here: Path) -> None:
    (here / "plan.yaml").write_text(
        "method: fedavg\nclients: 3\nrounds: 5\nseeds: [4]\nsettings: {hidden: 8, lr: 0.02}\n"
    )
    called = call("run --config plan.yaml --rounds 2 --set lr=1e-3 --eval-every 2 --checkpoint-every 9 --out out -q")
    assert called.status == 0, called.err
    config = json.loads((here / "out" / "config.json").read_text())
    assert config["method"] == "fedavg"
    assert config["rounds"] == 2
    assert config["seeds"] == [4]
    assert config["settings"] == {"hidden": 8, "lr": 0.001}
    assert config["evaluate_every"] == 2
    assert config["checkpoint_seconds"] == 9
    # A run's own config.json repeats it.
    assert call("run --config out/config.json --out again -q").status == 0
    assert outcome(here / "again") == outcome(here / "out")


def test_a_saved_partition_is_trained_on(call: Callable, here: Path) -> None:
    assert call("partition patchwork --kind random --clients 4 --out cut.npz").status == 0
    called = call("run -m majority --partition cut.npz --out out --json -q")
    assert json.loads(called.out)["clients"] == 4


def test_sizes_say_how_many_clients(call: Callable) -> None:
    called = call("run -m majority --partition imbalanced --sizes 3,2,1 --out out --json -q")
    assert json.loads(called.out)["clients"] == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--method fedpup", "There is no method 'fedpup'; did you mean 'fedpub'?"),
        ("--set hiden=8", "There is no setting of quilt 'hiden'; did you mean 'hidden'?"),
        ("--set lr=-1", "The setting lr=-1 of method 'quilt' is not possible"),
        ("--set lr", "--set lr is not of the form name=value"),
        (
            "-m fedlit --set model=sage",
            "FedLIT has a graph convolution for each type of links, which model=sage has not",
        ),
        ("--method majority --set lr=1", "Method 'majority' has no settings"),
        ("--dataset patchwrk", "There is no dataset 'patchwrk'; did you mean 'patchwork'?"),
        ("--dataset nothing.npz", "There is no file or folder 'nothing.npz'"),
        ("--partition disjont", "There is no partition 'disjont'; did you mean 'disjoint'?"),
        ("--partition nothing.npz", "There is no partition file 'nothing.npz'"),
        ("--split 20/40", "20/40"),
        ("--split 50/50/50", "50/50/50"),
        ("--seeds 0,x", "--seeds '0,x' is not a list of whole numbers"),
        ("--seeds 1,1", "a seed is listed twice"),
        ("--sizes 3,", "--sizes '3,' is not a list of whole numbers"),
        ("--clients 0", "The option clients=0 is not possible"),
        ("--participation 1.5", "The option participation=1.5 is not possible"),
        ("--metric f2", "There is no metric 'f2'"),
        ("--epochs 2 --set epochs=3", "Local epochs are given twice, as epochs=2 and as the setting epochs=3"),
        (
            "-m fedpub --attack gaussian --set matching=false",
            "With these settings the method uploads no embedding to attack",
        ),
        ("--device tpu9", "There is no device 'tpu9'"),
        ("--config nothing.yaml", "The config file nothing.yaml cannot be read"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(refused: Callable, options: str, says: str) -> None:
    assert says in refused(f"run --rounds 2 {options}")


@pytest.mark.parametrize("wrote", ["", "--epochs 2", "--set epochs=2"])
def test_epochs_given_here_come_before_the_files_whichever_way(call: Callable, here: Path, wrote: str) -> None:
    assert call(f"run {SMALL} {wrote} --out out -q").status == 0
    for number, said in enumerate(("--epochs 4", "--set epochs=4", "--epochs 4 --set epochs=4")):
        called = call(f"run --config out/config.json {said} --out again-{number} -q")
        assert called.status == 0, called.err
        config = json.loads((here / f"again-{number}" / "config.json").read_text())
        assert config["epochs"] == config["resolved"]["settings"]["epochs"] == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("methd: fedpub", "There is no option 'methd'; did you mean 'method'?"),
        ("rounds: [", "is not valid YAML"),
        ("just text", "must hold names and values"),
        ("rounds: many", "The option rounds='many' is not possible"),
        ("settings: lr", "must be names and values"),
    ],
)
def test_a_wrong_config_file_is_one_sentence(refused: Callable, here: Path, text: str, says: str) -> None:
    (here / "plan.yaml").write_text(text)
    assert says in refused("run --config plan.yaml --set lr=1")


def test_an_unreadable_graph_file_is_one_sentence(refused: Callable, here: Path) -> None:
    (here / "graph.npz").write_bytes(b"this is no graph")
    assert "graph.npz" in refused("run --dataset graph.npz")


def test_a_folder_that_holds_something_is_left_alone(refused: Callable, here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "mine.txt").write_text("mine")
    for line in ("run -m majority", "compare -m majority,local"):
        assert "out is not empty, and holds no run that could be resumed" in refused(f"{line} --out out")
    assert [path.name for path in (here / "out").iterdir()] == ["mine.txt"]


def test_after_ctrl_c_resume_gives_what_an_undisturbed_run_gives(
    call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"run {SMALL} --rounds 5 --seeds 0,1 --participation 0.7 --checkpoint-every 0 -q"
    assert call(f"{line} --out whole").status == 0
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3, "quilt")
        called = call(f"{line} --out stopped")
        assert called.status == 130
        assert called.sentence == "stopped; continue with 'fedquilt resume stopped'."
        # Where no folder was named, the sentence still names it.
        assert "resume runs/quilt-patchwork-disjoint-3'" in call(line).sentence
    called = call("resume stopped --json -q")
    assert called.status == 0
    assert outcome(here / "stopped") == outcome(here / "whole")
    assert without_seconds(json.loads(called.out)) == outcome(here / "whole")[1]
    # A run that is done stays as it is.
    before = (here / "stopped" / "result.json").read_bytes()
    assert call("resume stopped").status == 0
    assert (here / "stopped" / "result.json").read_bytes() == before


def test_resume_of_something_else_is_one_sentence(refused: Callable, here: Path) -> None:
    assert refused("resume nothing") == "There is no run folder at nothing."
    (here / "empty").mkdir()
    assert "is not a run folder" in refused("resume empty")
    (here / "search").mkdir()
    (here / "search" / CONFIG).write_text("{}")
    assert refused("resume search") == "search holds a search; go on with the 'fedquilt tune' command that began it."
