from __future__ import annotations

from dataclasses import replace

from fedquilt.bench.table import HOW_TO_READ, bench_table, busy_sentences
from fedquilt.reports.tables import to_markdown
from support.bench import made_up


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
