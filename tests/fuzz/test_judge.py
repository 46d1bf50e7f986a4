"""The judge: each way in which a command may not end is told, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge import Failed, judge, leftovers, named, numbers
from fuzz.processes import CRASHED, Ended


def ended(status: int = 0, err: str = "", out: str = "", over: str = "", command: str = "run") -> Ended:
    return Ended(command.split(), status, out, err, 1.0, 100.0, None, over)


@pytest.mark.parametrize(
    "fine",
    [
        ended(),
        ended(2, "fedquilt: There is no file 'x'; check the path.\n"),
        ended(
            2, "note\nfedquilt: mine has 2 problems; correct them:\n  nodes.csv, line 2: a.\n  edges.csv, line 3: b.\n"
        ),
        ended(2, "trial 1/2\nfedquilt: There is no method 'x'; did you mean 'y'?\n"),
        ended(3, "fedquilt: The disk is full; resume with 'fedquilt resume out'.\n"),
        ended(1, "Failed: one cell.\n", command="study run tiny.yaml"),
    ],
)
def test_a_result_or_a_sentence_is_fine(fine: Ended) -> None:
    assert judge(fine) is fine


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (ended(CRASHED), "traceback"),
        (ended(2, "Traceback (most recent call last):\n  x\n"), "traceback"),
        (ended(1, "fedquilt: something went wrong inside: x; run again with --debug and report it.\n"), "defect told"),
        (ended(1, "fedquilt: no.\n"), "status"),
        (ended(130, "fedquilt: stopped.\n"), "status"),
        (ended(-9), "ended by a signal"),
        (ended(0, over="memory"), "too much memory"),
        (ended(0, over="time"), "too much time"),
        (ended(0, out="name: \x1b[2J\n"), "raw control character"),
        (ended(2, "x.\n"), "no sentence"),
        (ended(2, "fedquilt: a\nb.\n"), "no sentence"),
        (ended(2, ""), "no sentence"),
        (ended(2, "fedquilt: mine has 2 problems:\n  nodes.csv: a\n"), "no sentence"),
    ],
)
def test_any_other_end_is_a_failure(bad: Ended, what: str) -> None:
    with pytest.raises(Failed) as found:
        judge(bad)
    assert found.value.what == what


def test_temporary_files_are_leftovers_and_locks_are_not(tmp_path: Path) -> None:
    for name in (".lock", ".privacy.lock", "result.json", ".result.json.12-ab.tmp", ".hidden"):
        (tmp_path / name).write_text("")
    assert leftovers(tmp_path) == [".hidden", ".result.json.12-ab.tmp"]


def test_numbers_and_names_are_read_from_texts() -> None:
    assert numbers("test 51.35 ± 0.20, 1,024 bytes, 1e-05") == {"51.35", "0.20", "1,024", "1e-05"}
    assert named(Path("out/models.safetensors"), ended(2, "fedquilt: The models in out cannot be used.\n"))
    assert named(Path("mine/edges.csv"), ended(2, "fedquilt: mine has 2 problems:\n  nodes.csv: a.\n  edges.csv: b.\n"))
    assert not named(Path("out/summary.json"), ended(2, "fedquilt: The models in out cannot be used.\n"))
