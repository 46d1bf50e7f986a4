from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.bench.result import read_result, write_result
from fedquilt.training.loop import Training

QUICK = "bench --quick --rounds 1 --method local --device cpu --threads 1"


def test_everything_is_measured_said_and_written(call: Callable, here: Path) -> None:
    called = call(f"{QUICK} --out made/bench.json --figure bench.svg")
    assert called.status == 0, called.err
    for piece in ("patchwork/natural/10", "fedavg", "local", "Plain/ours", "Read the ratios", "made/bench.json"):
        assert piece in called.out
    assert "majority" not in called.out
    assert "patchwork/natural/10: 1 of 1" in called.err
    result = read_result(here / "made" / "bench.json")
    assert {method for _, method in result.ours()} == {"fedavg", "local"}
    assert result.about["threads"] == 1
    assert (here / "bench.svg").read_text().count("FedAvg") >= 2
    again = here / "again.json"
    write_result(result, again)
    assert json.loads(again.read_text()) == json.loads((here / "made" / "bench.json").read_text())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--cell cora", "'cora' is not a cell; write dataset/partition/clients, such as cora/disjoint/10."),
        ("--cell coar/disjoint/10", "There is no dataset 'coar'; did you mean 'cora'?"),
        ("--cell cora/disjoin/10", "There is no partition 'disjoin'; did you mean 'disjoint'?"),
        ("--cell patchwork/natural/3", "gives 10 clients; write patchwork/natural/10."),
        ("--cell patchwork/disjoint/5000", "5000"),
        ("--method fedpup", "There is no method 'fedpup'; did you mean 'fedpub'?"),
        ("--method majority", "takes one round only"),
        ("--method ,", "Say which methods to measure, such as --method fedpub,quilt."),
        ("--device tpu9", "There is no device 'tpu9'; use auto, cpu or cuda"),
        ("--device meta", "use auto, cpu or cuda"),
        ("--threads 0", "--threads"),
        ("--rounds 0", "--rounds"),
        ("--out result.txt", "has to end in .json"),
        ("--figure picture.gif", "has to end in .png or .pdf or .svg"),
        ("--against nothing.json", "nothing.json cannot be read: No such file or directory."),
    ],
)
def test_wrong_input_is_one_sentence_and_nothing_is_written(refused: Callable, line: str, says: str) -> None:
    assert says in refused(f"bench --quick --history kept {line}")


def test_files_that_are_there_are_left_alone_unless_forced(refused: Callable, call: Callable, here: Path) -> None:
    (here / "bench.json").write_text("mine")
    assert "already there" in refused(f"{QUICK} --out bench.json")
    assert "is a file; name a folder" in refused(f"{QUICK} --history bench.json")
    assert call(f"{QUICK} --out bench.json --force --quiet").err == ""
    assert read_result(here / "bench.json").rows


def test_a_graph_that_is_not_here_is_one_line_and_the_rest_goes_on(call: Callable, here: Path) -> None:
    called = call(f"{QUICK} --cell credit/disjoint/5 --quiet --out bench.json")
    assert called.status == 0
    assert called.err.startswith("credit/disjoint/5 is left out: ")
    assert called.err.count("\n") == 1
    assert read_result(here / "bench.json").left_out == [called.err.strip()]


def test_history_is_kept_and_a_slowed_method_shows(call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = call(f"{QUICK} --history kept")
    assert "kept has no earlier result of this device" in called.out
    (first,) = (here / "kept").iterdir()
    whole = Training.advance

    def slowed(self: Training, rounds: int) -> None:
        for _ in range(6 if self.method.name == "local" else 1):
            whole(self, rounds)

    monkeypatch.setattr(Training, "advance", slowed)
    called = call(f"{QUICK} --against {first} --out second.json")
    assert f"More than 20% slower than in {first}, " in called.out
    assert "\n  local on patchwork/natural/10: " in called.out
    older = json.loads(first.read_text())
    older["about"]["date"] = "2020-01-01T00:00:00+00:00"
    first.write_text(json.dumps(older))
    called = call(f"{QUICK} --history kept")
    assert "\n  local on patchwork/natural/10: " in called.out
    assert len(list((here / "kept").iterdir())) == 2


def test_against_a_result_of_another_machine_says_so(call: Callable, here: Path) -> None:
    call(f"{QUICK} --out one.json")
    values = json.loads((here / "one.json").read_text())
    values["about"]["device_name"] = "another"
    for row in values["rows"]:
        row["to_plain_fedavg"] *= 100
    (here / "one.json").write_text(json.dumps(values))
    out = call(f"{QUICK} --against one.json").out
    assert "one.json is of another device" in out
    assert "More than 20% slower than in one.json: none of 2 measurements." in out
    for row in values["rows"]:
        row["cell"] = "elsewhere"
    (here / "one.json").write_text(json.dumps(values))
    assert "one.json has no cell and method in common" in call(f"{QUICK} --against one.json").out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert call(QUICK).status == 0
    assert "patchwork/natural/10" in screen.getvalue()
    assert "1/1" in screen.getvalue()
