"""A forked function: its result, its output, and its end where it takes too much."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from fuzz.processes import CRASHED, forked


def test_the_result_and_the_output_come_back(tmp_path: Path) -> None:
    def does() -> Any:
        print("out " * 50_000)
        print("err", file=sys.stderr)
        return {"where": os.getcwd()}

    ended = forked(does, tmp_path)
    assert (ended.status, ended.value, ended.err) == (0, {"where": str(tmp_path)}, "err\n")
    assert len(ended.out) == 200_001


def test_a_number_is_the_exit_status_and_an_error_a_crash(tmp_path: Path) -> None:
    assert forked(lambda: 2, tmp_path).status == 2
    ended = forked(lambda: 1 / 0, tmp_path)
    assert ended.status == CRASHED
    assert "ZeroDivisionError" in ended.err


def test_too_much_memory_or_time_ends_it(tmp_path: Path) -> None:
    def grow() -> int:
        kept = []
        while True:
            kept.append(bytearray(os.urandom(2**20)) * 32)
            time.sleep(0.01)

    def burn() -> int:
        while True:
            pass

    assert forked(grow, tmp_path, memory_mb=1500.0).over == "memory"
    assert forked(burn, tmp_path, cpu_seconds=0.2).over == "time"
