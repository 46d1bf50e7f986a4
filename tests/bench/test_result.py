from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedquilt.bench.result import OURS, PLAIN_LOOP, read_result, write_result
from fedquilt.bench.table import HOW_TO_READ, bench_table, busy_sentences
from fedquilt.errors import FedquiltError
from fedquilt.reports.tables import to_markdown
from support.bench import made_up


def test_ratios_are_those_of_the_same_turn() -> None:
    rows = {(row.side, row.method): row for row in made_up().rows}
    fedavg, plain, quilt = rows[OURS, "fedavg"], rows[PLAIN_LOOP, "fedavg"], rows[OURS, "quilt"]
    assert (fedavg.ms, fedavg.best_ms, plain.ms) == pytest.approx((11.0, 10.0, 88.0))
    assert (fedavg.speedup, fedavg.speedup_best) == pytest.approx((8.0, 8.0))
    assert (quilt.to_fedavg, quilt.to_plain_fedavg, quilt.best_to_plain_fedavg) == pytest.approx((1.6, 0.2, 0.2))
    assert quilt.speedup is None
    assert plain.speedup is None


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = made_up()
    write_result(result, tmp_path / "r.json")
    assert read_result(tmp_path / "r.json") == result


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "another"}', '{"format": "fedquilt bench 1", "rows": [{}]}']
)
def test_what_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(FedquiltError, match="is not a result of 'fedquilt bench'"):
        read_result(tmp_path / "r.json")


def test_a_result_that_lacks_something_or_is_not_there_is_refused(tmp_path: Path) -> None:
    write_result(made_up(), tmp_path / "r.json")
    values = json.loads((tmp_path / "r.json").read_text())
    del values["rows"][0]["ms"]
    (tmp_path / "r.json").write_text(json.dumps(values))
    with pytest.raises(FedquiltError, match="is not a result"):
        read_result(tmp_path / "r.json")
    with pytest.raises(FedquiltError, match="cannot be read: No such file"):
        read_result(tmp_path / "none.json")


def test_the_table_has_a_row_a_method_with_the_plain_loop_beside_it() -> None:
    lines = to_markdown(bench_table(made_up())).splitlines()
    assert lines[0] == "Some (R) CPU @ 3 GHz, 2 threads, torch 2.13.0"
    assert lines[4] == "| cora/disjoint/10 | fedavg | 1 | 11 | 10 | 1.0x | 88 | 8.0x | 8.0x | - |"
    assert lines[5] == "|  | quilt | 3 | 17.6 | 16 | 1.6x |  |  |  | 948 |"
    assert all(name in HOW_TO_READ for name in ("x FedAvg", "Plain/ours"))


def test_a_busy_machine_is_said_to_be() -> None:
    idle = made_up()
    assert busy_sentences(idle) == []
    busy = replace(idle, rows=[replace(row, best_ms=row.best_ms / 3) for row in idle.rows])
    assert busy_sentences(busy) == [
        "The machine was busy, medians are 3.3 times the best turns; trust Best/best, or measure again."
    ]
