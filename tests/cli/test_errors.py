"""An error is one sentence and an exit status."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fedquilt.cli.errors import (
    DEFECT,
    LIMIT,
    STOPPED,
    WRONG_INPUT,
    StoppedError,
    explain,
    limits_explained,
    resumable,
)
from fedquilt.errors import FedquiltError, MachineLimitError

FULL = "The disk has no room or failed: out/x could not be written (No space left on device); free some room"


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (FedquiltError("There is no method 'x'."), WRONG_INPUT, "There is no method 'x'."),
        (StoppedError("stopped."), STOPPED, "stopped."),
        (OSError(errno.ENOSPC, "", "out/x"), LIMIT, FULL + "."),
        (MachineLimitError("Too small."), LIMIT, "Too small."),
        (
            PermissionError(errno.EACCES, "", "x"),
            WRONG_INPUT,
            "x cannot be used (Permission denied); choose a file or folder that this user may use, or correct its permissions.",
        ),
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


def test_a_full_disk_names_the_folder_to_resume_once_there_is_one() -> None:
    with pytest.raises(MachineLimitError, match=r", then run the same command again\.$"), resumable([]):
        raise OSError(errno.ENOSPC, "")
    with (
        pytest.raises(MachineLimitError, match=r", then resume with 'fedquilt resume out'\.$"),
        resumable([Path("out")]),
    ):
        raise OSError(errno.ENOSPC, "", "out/x")
    # An error that is a sentence already keeps it.
    with (
        pytest.raises(MachineLimitError, match=r"^Too small; then resume with 'fedquilt resume out'\.$"),
        resumable([Path("out")]),
    ):
        raise MachineLimitError("Too small.")


def test_a_folder_that_is_closed_while_a_run_writes_can_be_resumed_but_a_file_that_was_named_is_wrong_input() -> None:
    with pytest.raises(MachineLimitError, match="fedquilt resume out"), resumable([Path("out")]):
        raise PermissionError(errno.EACCES, "", "out/x")
    with pytest.raises(PermissionError), resumable([]):
        raise PermissionError(errno.EACCES, "", "graph.npz")
    with pytest.raises(FedquiltError) as caught, resumable([Path("out")]):
        raise FedquiltError("The graph cannot be read.") from PermissionError(errno.EACCES, "", "graph.npz")
    assert not isinstance(caught.value, MachineLimitError)


def test_defects_and_ctrl_c_pass_where_the_same_command_goes_on() -> None:
    for error in (ValueError(), KeyboardInterrupt()):
        with pytest.raises(type(error)), limits_explained():
            raise error
