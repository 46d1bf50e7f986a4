from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from fedquilt.errors import FedquiltError
from fedquilt.reports.tables import comparison_table, run_table, to_markdown


def result(method: str, test: float | None, **other: Any) -> dict[str, Any]:
    seeds = [
        {
            "seed": seed,
            "best_round": 40 + seed,
            "val": 80.0,
            "test": test,
            "seconds": 10.0,
            "seconds_per_round": 0.0123456,
            "upload_bytes": 150_000_000,
            "download_bytes": 50_000_000,
        }
        for seed in range(3)
    ]
    return {
        "method": method,
        "dataset": "cora",
        "partition": "disjoint",
        "clients": 10,
        "rounds": 100,
        "metric": "accuracy",
        "test_mean": test,
        "test_std": None if test is None else 0.5,
        "val_mean": 80.0,
        "seeds": seeds,
        **other,
    }


def printed(table: Table) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_comparison_marks_the_best() -> None:
    table = comparison_table([result("fedavg", 75.0), result("fedpub", 81.234), result("none", None)])
    assert to_markdown(table).splitlines() == [
        "cora, disjoint, 10 clients, accuracy in %",
        "",
        "| Method | Test | Val | Best round | s/round | MB up/round | MB down/round |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| fedavg | 75.00 ± 0.50 | 80.00 | 41 | 0.0123 | 1.50 | 0.50 |",
        "| **fedpub** | **81.23 ± 0.50** | 80.00 | 41 | 0.0123 | 1.50 | 0.50 |",
        "| none | - | 80.00 | 41 | 0.0123 | 1.50 | 0.50 |",
    ]
    assert "81.23 ± 0.50" in printed(table)


def test_each_setting_has_its_own_best_and_what_differs_is_a_column() -> None:
    table = comparison_table(
        [
            result("a", 70.0),
            result("b", 71.0),
            result("a", 90.0, dataset="pubmed", clients=5),
            result("b", 89.0, dataset="pubmed", clients=5),
        ]
    )
    lines = to_markdown(table).splitlines()
    assert lines[0] == "disjoint, accuracy in %"
    assert lines[2].startswith("| Dataset | Clients | Method |")
    assert [line.split(" | ")[2] for line in lines[4:]] == ["a", "**b**", "**a**", "b"]


def test_one_result_is_not_the_best_of_anything() -> None:
    assert "**" not in to_markdown(comparison_table([result("a", 70.0)]))


def test_nothing_to_compare() -> None:
    with pytest.raises(FedquiltError, match="no results"):
        comparison_table([])


def test_run_table_has_a_row_a_seed_and_the_mean() -> None:
    lines = to_markdown(run_table(result("fedpub", 81.0))).splitlines()
    assert lines[0] == "fedpub: cora, disjoint, 10 clients, accuracy in %, 100 rounds"
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| 0", "| 1", "| 2", "| **mean**"]
    assert lines[-1] == "| **mean** | 41 | 80.00 | **81.00 ± 0.50** | 10.0 | 0.0123 | 1.50 | 0.50 |"


GROUPS = {
    "trained": {"clients": 7, "test_mean": 81.0, "test_std": 0.5},
    "new": {"clients": 3, "test_mean": 70.0, "test_std": 1.25},
}


def test_run_table_has_a_row_a_group_of_clients() -> None:
    lines = to_markdown(run_table(result("a", 81.0, groups=GROUPS))).splitlines()
    assert lines[-3].startswith("| **mean**")
    assert lines[-2:] == [
        "| trained (7) |  |  | 81.00 ± 0.50 |  |  |  |  |",
        "| new (3) |  |  | 70.00 ± 1.25 |  |  |  |  |",
    ]
    assert "new (3)" in printed(run_table(result("a", 81.0, groups=GROUPS)))


def test_comparison_has_a_column_a_group_of_clients() -> None:
    nothing = {"new": {"clients": 3, "test_mean": None, "test_std": None}}
    table = comparison_table(
        [result("a", 81.0, groups=GROUPS), result("b", 80.0), result("c", 79.0, groups=GROUPS | nothing)]
    )
    lines = to_markdown(table).splitlines()
    assert lines[2].startswith("| Method | Test | Test trained | Test new | Val |")
    assert lines[4].startswith("| **a** | **81.00 ± 0.50** | 81.00 ± 0.50 | 70.00 ± 1.25 | 80.00 |")
    assert lines[5].startswith("| b | 80.00 ± 0.50 | - | - | 80.00 |")
    assert lines[6].startswith("| c | 79.00 ± 0.50 | 81.00 ± 0.50 | - | 80.00 |")


def test_one_seed_claims_no_spread() -> None:
    one = result("fedpub", 81.0)
    one["seeds"] = one["seeds"][:1]
    assert "±" not in to_markdown(run_table(one))


def test_names_cannot_break_a_table() -> None:
    odd = result("a|b [bold]", 1.0)
    assert "a\\|b [bold]" in to_markdown(comparison_table([odd]))
    assert "a|b [bold]" in printed(comparison_table([odd]))


def test_megabytes_are_of_the_rounds_that_were_done() -> None:
    early = result("fedavg", 75.0)
    early["seeds"] = [seed | {"rounds_run": 50 * (1 + seed["seed"])} for seed in early["seeds"]]
    assert "| 1.50 | 0.50 |" in to_markdown(comparison_table([early]))  # 450 MB up in 50 + 100 + 150 rounds
    rows = to_markdown(run_table(early)).splitlines()[4:]
    assert [row.split("|")[-3].strip() for row in rows] == ["3.00", "1.50", "1.00", "1.50"]


def test_a_method_that_failed_or_was_retried_says_so_in_its_row() -> None:
    retried = result("quilt", 75.0)
    retried["seeds"][1]["retried"] = "lr=0.001 clip=1"
    failed = result("fedssa", None, failed="Training diverged.", seeds=[], val_mean=None)
    rows = to_markdown(comparison_table([result("fedavg", 74.0), retried, failed])).splitlines()[4:]
    assert [row.split("|")[-2].strip() for row in rows] == [
        "",
        "retried: lr=0.001 clip=1 (seed 1)",
        "Training diverged.",
    ]
    assert rows[2].startswith("| fedssa | failed | - | - | - | - | - |")
    assert "| lr=0.001 clip=1 |" in to_markdown(run_table(retried))
    assert "Retried" not in to_markdown(run_table(result("fedavg", 74.0)))
