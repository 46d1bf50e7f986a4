"""Noise, folds, malicious and held-out clients on the command line: what is printed, written, resumed and refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.cli import interrupt_at, outcome
from support.newcomers import NAME, keeping

SMALL = "--clients 5 --rounds 4 --set hidden=8 --device cpu -q"
ATTACK = "--attack gaussian --attack-scale 3 --attack-ratio 0.4"
HOLD_OUT = "--hold-out-clients 0.4"


@pytest.fixture(autouse=True)
def _admitting() -> Iterator[None]:
    with keeping():
        yield


def rows(table: str) -> dict[str, list[str]]:
    """The rows of a printed table by their first cell."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line.startswith("│")]
    return {row[0]: row[1:] for row in cells}


@pytest.mark.parametrize(
    ("line", "groups"),
    [
        (f"-m fedpub {ATTACK}", {"honest": 3, "malicious": 2}),
        (f"-m {NAME} {HOLD_OUT}", {"trained": 3, "new": 2, "new without training": 2, "new alone": 2}),
    ],
)
def test_groups_are_printed_shown_and_in_the_json(call: Callable, here: Path, line: str, groups: dict) -> None:
    called = call(f"run {line} {SMALL} --seeds 0,1 --out out")
    assert called.status == 0, called.err
    result = json.loads((here / "out" / "result.json").read_text())
    assert {name: group["clients"] for name, group in result["groups"].items()} == groups
    shown = call("show out")
    for printed in (rows(called.out), rows(shown.out)):
        for name, group in result["groups"].items():
            row = printed[f"{name} ({group['clients']})"]
            assert row[2] == f"{group['test_mean']:.2f} ± {group['test_std']:.2f}"
    assert json.loads(call("resume out --json").out) == result
    for seed, one in zip((0, 1), result["seeds"], strict=True):
        summary = json.loads((here / "out" / f"seed-{seed}" / "summary.json").read_text())
        assert summary["groups"] == one["groups"]
    assert "fedpub" in line or "similarity" not in shown.out


def test_without_groups_there_are_no_rows_for_them(call: Callable, here: Path) -> None:
    called = call(f"run -m fedpub {SMALL} --out out")
    assert list(rows(called.out)) == ["0", "mean"]
    assert "groups" not in (here / "out" / "result.json").read_text()
    assert "groups" not in (here / "out" / "seed-0" / "summary.json").read_text()


@pytest.mark.parametrize(
    "line",
    [
        f"-m fedpub {ATTACK} --edge-noise 0.2",
        f"-m {NAME} {HOLD_OUT} --split 4fold --min-train 2",
    ],
)
def test_after_ctrl_c_resume_gives_what_an_undisturbed_run_gives(
    call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    line = f"run {line} {SMALL} --seeds 0,1 --participation 0.7 --checkpoint-every 0"
    assert call(f"{line} --out whole").status == 0
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, line.split()[2])
        assert call(f"{line} --out stopped").status == 130
    assert "Seed 0 is not done" in call("show stopped").out
    assert call("resume stopped -q").status == 0
    assert outcome(here / "stopped") == outcome(here / "whole")
    # A run's own config.json repeats it.
    assert call("run --config whole/config.json --out again -q").status == 0
    assert outcome(here / "again") == outcome(here / "whole")


def test_a_comparison_has_a_column_for_each_group_and_is_resumed(
    call: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"compare -m {NAME},fedavg {HOLD_OUT} --edge-noise 0.1 --split 5fold {SMALL} --checkpoint-every 0"
    called = call(f"{line} --out whole")
    assert called.status == 0, called.err
    for shown in (called, call("show whole")):
        for word in ("trained", "Test new", "without", "alone"):  # headings are wrapped
            assert word in shown.out
    assert (
        "| Test | Test trained | Test new | Test new without training | Test new alone |"
        in (here / "whole" / "comparison.md").read_text()
    )
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, "fedavg")
        assert call(f"{line} --out stopped").status == 130
    assert call("resume stopped -q").status == 0
    for method in (NAME, "fedavg"):
        assert outcome(here / "stopped" / method) == outcome(here / "whole" / method)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run --split 2fold", "The split '2fold' has too few folds"),
        ("run --edge-noise 2", "The option edge_noise=2.0 is not possible"),
        ("run --attack loud", "input should be 'same-value', 'gaussian', 'noise'"),
        ("run --attack-ratio 0.4", "there is no attack; say which"),
        ("run --attack gaussian --attack-ratio 1", "The option attack_ratio=1.0 is not possible"),
        ("run -m fedavg --attack gaussian", "Method 'fedavg' uploads no embedding to attack"),
        ("run -m fedssa --aggregation median", "The server of method 'fedssa' does not average all that clients send"),
        ("run -m fedavg --aggregation-clip 2", "it is for aggregation=clipped only"),
        ("run -m fedavg --dp-noise 1", "uploads are not clipped; say to which norm with dp_clip"),
        ("run -m fedavg --dp-clip 1 --dp-delta 1e-6", "dp_clip wants dp_noise beside it, or dp_epsilon"),
        ("run -m local --hold-out-clients 0.3", "Method 'local' cannot admit clients after training"),
        (f"run -m {NAME} --hold-out-clients 1", "The option hold_out_clients=1.0 is not possible"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(refused: Callable, line: str, says: str) -> None:
    assert says in refused(f"{line} --rounds 2")
