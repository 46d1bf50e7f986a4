"""An error is one sentence and an exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.cli.errors import DEFECT, STOPPED, WRONG_INPUT, StoppedError, explain, resumable
from fedquilt.errors import FedquiltError


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (FedquiltError("There is no method 'x'."), WRONG_INPUT, "There is no method 'x'."),
        (StoppedError("stopped."), STOPPED, "stopped."),
        (
            ValueError("two\nlines."),
            DEFECT,
            "something went wrong inside: ValueError: two lines; run again with --debug and report it.",
        ),
    ],
)
def test_each_kind_of_error_has_its_status(
    error: Exception, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(error, debug=False) == status
    assert capsys.readouterr().err == f"fedquilt: {says}\n"


def test_an_error_is_printable_and_short(capsys: pytest.CaptureFixture[str]) -> None:
    for debug in (False, True):
        with pytest.raises(FedquiltError) as caught:
            raise FedquiltError("There is no 'a\x1b[2J\nfedquilt: done" + "x" * 5000 + "'.")
        assert explain(caught.value, debug=debug) == WRONG_INPUT
        err = capsys.readouterr().err
        last = err.splitlines()[-1]
        assert last.startswith(r"fedquilt: There is no 'a\u001b[2J\u000afedquilt: donexxx")
        assert last.endswith("xxx'.")
        assert len(last) < 1600
        assert "\x1b" not in err


def test_ctrl_c_names_the_folder_to_resume_once_there_is_one() -> None:
    with pytest.raises(StoppedError, match=r"^stopped before anything was written\.$"), resumable([]):
        raise KeyboardInterrupt
    with (
        pytest.raises(StoppedError, match=r"^stopped; continue with 'fedquilt resume out'\.$"),
        resumable([Path("out")]),
    ):
        raise KeyboardInterrupt
