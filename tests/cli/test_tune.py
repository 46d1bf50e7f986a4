from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.cli.tune import in_words, watching
from fedquilt.tuning.outcome import Trial
from fedquilt.tuning.progress import SearchProgress
from support.cli import environment, interrupt_at

SEARCH = "tune -m fedavg --clients 3 --rounds 4 --set hidden=8 --device cpu"
FOLDER = Path("tuning/fedavg-patchwork-disjoint-3")


def test_it_explains_itself_with_an_example_and_imports_nothing_heavy(call: Callable) -> None:
    called = call("tune --help")
    assert called.status == 0
    assert "For example" in called.out
    assert "fedquilt tune" in called.out
    assert "validation only" in called.out
    script = (
        "import sys; from fedquilt.cli import main; main(['tune', '--help'])\n"
        "sys.exit(str({'torch', 'numpy', 'scipy', 'optuna', 'fedquilt.api', 'fedquilt.tuning'} & set(sys.modules) or 0))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment())
    assert done.stderr.strip() == "0"


def test_a_search_from_beginning_to_end(call: Callable, here: Path) -> None:
    called = call(f"{SEARCH} --trials 11 --seeds 0,1")
    assert called.status == 0, called.err
    assert "Best trials by validation accuracy in %" in called.out
    assert "1 (defaults)" in called.out
    assert "best validation accuracy is" in called.out
    assert f"'fedquilt run --config {FOLDER}/best.yaml'" in called.out
    lines = called.err.splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("trial 1/11: val ")
    assert lines[0].endswith(" left")
    assert "test" not in (called.out + called.err).lower()
    assert sorted(p.name for p in (here / FOLDER).iterdir()) == [
        *(".lock", "best.yaml", "history.png", "journal.jsonl", "seal.json", "tune.json")
    ]
    assert "test" not in (here / FOLDER / "journal.jsonl").read_text()
    best = (here / FOLDER / "best.yaml").read_text()
    assert call(f"run --config {FOLDER}/best.yaml -q --out run").status == 0
    val = json.loads((here / "run" / "result.json").read_text())["val_mean"]
    assert f"Validation accuracy {val:.2f}" in best
    again = call(f"{SEARCH} --trials 11 --seeds 0,1")
    assert again.out == called.out
    assert again.err == ""


def test_options_come_from_a_config_file_and_the_best_go_where_they_are_asked_for(call: Callable, here: Path) -> None:
    (here / "options.yaml").write_text("method: fedavg\nclients: 3\nrounds: 3\ndevice: cpu\nsettings: {hidden: 8}\n")
    (here / "space.yaml").write_text("lr: {low: 1e-3, high: 1e-1, log: true}\nepochs: [1, 2]\n")
    line = "tune --config options.yaml --space space.yaml --trials 2 --into search --out best.yaml --quiet"
    called = call(line)
    assert called.status == 0, called.err
    assert called.err == ""
    assert "fedquilt run --config best.yaml" in called.out
    assert (here / "best.yaml").read_text().startswith("# Found by 'fedquilt tune'")
    assert json.loads((here / "search" / "tune.json").read_text())["space"] == {
        "lr": {"low": 0.001, "high": 0.1, "log": True},
        "epochs": [1, 2],
    }
    assert call(f"{line} --trials 3").status == 0  # it is a search's own file, so it is written again
    assert call("run --config best.yaml -q --out run").status == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tune --method fedpup", "There is no method 'fedpup'; did you mean 'fedpub'?"),
        ("tune --dataset nothing-there", "nothing-there"),
        ("tune -m majority", "Method 'majority' has no settings, so there is nothing to search."),
        (f"{SEARCH} --trials 0", "A search needs at least one trial, not 0."),
        (f"{SEARCH} --timeout -1", "The timeout is -1 seconds; give a number above 0."),
        (f"{SEARCH} --set lrr=1", "There is no setting of fedavg 'lrr'; did you mean 'lr'?"),
        (f"{SEARCH} --set lr=0", "The setting lr=0 of method 'fedavg' is not possible"),
        (f"{SEARCH} --set lr=0.1 --set weight_decay=0 --set dropout=0", "is left to search; fix fewer settings."),
        (f"{SEARCH} --space none.yaml", "The space file none.yaml cannot be read"),
        (f"{SEARCH} --out best.txt", "'best.txt' has to end in .yaml or .yml; rename it."),
        (f"{SEARCH} --metric f2", "There is no metric 'f2'"),
        (f"{SEARCH} --seeds 0,0", "a seed is listed twice"),
    ],
)
def test_wrong_input_is_one_sentence_and_nothing_is_written(refused: Callable, line: str, says: str) -> None:
    assert says in refused(line)


def test_files_and_folders_of_others_are_left_alone(call: Callable, refused: Callable, here: Path) -> None:
    (here / "mine.yaml").write_text("method: fedavg\n")
    assert "mine.yaml is already there" in refused(f"{SEARCH} --out mine.yaml")
    assert "is a file" in refused(f"{SEARCH} --into mine.yaml")
    (here / "space.yaml").write_text("hidden: []\n")
    assert refused("tune -m fedavg --space space.yaml").startswith("The space of hidden is an empty list")
    assert call(f"{SEARCH} --trials 1 -q").status == 0
    assert refused(f"{SEARCH} --trials 1 --epochs 3") == (
        f"{FOLDER} holds another search: it has epochs 1, not 3; choose another folder with --into."
    )


def test_without_optuna_it_says_what_to_install(refused: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("fedquilt.tuning")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert refused(SEARCH) == "Tuning needs Optuna; install it with: pip install 'fedquilt[tune]'."


def test_ctrl_c_says_how_to_go_on(call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, "fedavg")
        called = call(f"{SEARCH} --trials 2 -q")
    assert called.status == 130
    assert called.sentence == "stopped; continue with the same command."
    assert call(f"{SEARCH} --trials 2 -q").status == 0


def test_a_killed_search_goes_on_with_the_trials_it_would_have_had(call: Callable, here: Path) -> None:
    line = f"{SEARCH} --trials 10 --rounds 20"
    command = [sys.executable, "-m", "fedquilt.cli", *line.split(), "--into", "killed"]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    journal, began = here / "killed" / "journal.jsonl", time.monotonic()
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 50):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() - began < 60
        time.sleep(0.002)
    if sys.platform != "win32":
        assert "is being written by process" in call(f"{line} --into killed").err
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed, whole = (call(f"{line} --into {folder} -q") for folder in ("killed", "whole"))
    assert killed.status == whole.status == 0
    assert killed.out.replace("killed", "whole") == whole.out
    assert (here / "killed" / "best.yaml").read_text() == (here / "whole" / "best.yaml").read_text()


# -- progress ----------------------------------------------------------------------------------------------------------

DONE = Trial(2, {"lr": 0.1}, 81.234, "done")


def test_what_became_of_a_trial_in_words() -> None:
    assert in_words(DONE) == "val 81.23"
    assert in_words(Trial(3, {}, None, "stopped", None, 14)) == "stopped after 14 rounds"
    assert in_words(Trial(3, {}, None, "failed", "Training diverged.")) == "failed: Training diverged."


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with watching(quiet=False) as watch:
        assert watch is not None
        watch(SearchProgress(2, 12, 0.5, 80.5, 79.25, 42.0))
        watch(SearchProgress(2, 12, 1.0, 80.5, 81.23, 40.0, DONE))
    shown = screen.getvalue()
    for part in ("trial 2/12", "best 81.23", "40 s left"):
        assert part in shown
    with watching(quiet=True) as nothing:
        assert nothing is None
